#!/usr/bin/env bash
# All tests: the shape of the sources (tests/shape.py), those in Rust, then those in Python against the release binary: of the
# daemon by a client that knows only the protocol (tests/python), and of the Python package (python/tests). Everything it
# makes stays under target/.
#
# The encrypted sockets (feature curve) are tested where libzmq is, with a binary of its own under target/curve.
#
# What cannot run here (no python3, no packages to be had) is counted and reported as skipped; with CI=true that fails.
# Arguments go to both runs of pytest: tests/run.sh -m "not slow".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

given=$#
passed=0 failed=0 skipped=0
reasons=()
logs=target/test-logs
mkdir -p "$logs"

skip() { # COUNT REASON
    skipped=$((skipped + $1))
    reasons+=("$2")
    echo "SKIPPED: $2"
}

# Sum of the numbers before a word in the summary lines of a log: count LOG LINE-PATTERN WORD
count() {
    { grep -E "$2" "$1" || true; } | { grep -oE "[0-9]+ $3" || true; } | awk '{ sum += $1 } END { print sum + 0 }'
}

echo "== shape"
if ! command -v python3 >"$logs/which"; then
    skip 1 "the shape of the sources: there is no python3"
elif python3 tests/shape.py; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
fi

echo "== cargo test --release --workspace"
status=0
cargo test --release --workspace --exclude criticd-fuzz --features criticd/tables --no-fail-fast 2>&1 | tee "$logs/cargo" || status=$?
passed=$((passed + $(count "$logs/cargo" '^test result:' passed)))
found=$(count "$logs/cargo" '^test result:' failed)
ignored=$(count "$logs/cargo" '^test result:' ignored)
failed=$((failed + found))
if [ "$ignored" -gt 0 ]; then skip "$ignored" "$ignored tests in Rust are marked as ignored"; fi
# Whatever failed without being a test, a compile error for instance, must not get lost.
if [ "$status" -ne 0 ] && [ "$found" -eq 0 ]; then failed=$((failed + 1)); fi

# The binary as tests in Rust use it: dependencies then have the features that these tests ask for, and are compiled once.
binary() {
    cargo test --release --no-run --test cli --features "$1"
}

echo "== binary"
built=0
binary tables || { built=1; failed=$((failed + 1)); }

# The same folder, for the same reason; the plain binary takes its place again afterwards.
curve=target/curve/criticd
if [ "$built" -eq 0 ] && pkg-config --exists 'libzmq >= 4.2' 2>"$logs/which"; then
    echo "== binary with --features tables,curve"
    mkdir -p target/curve
    if binary tables,curve && cp target/release/criticd "$curve"; then
        binary tables
    else
        failed=$((failed + 1))
    fi
else
    rm -f "$curve"
    echo "No libzmq: encrypted sockets are not tested (Debian: libzmq3-dev, pkg-config)."
fi

suite() { # LOG FOLDER ARGUMENTS...
    local log=$logs/$1 folder=$2 status=0
    shift 2
    echo "== pytest $folder"
    # Away from the folder python/, so that the package is the one that was installed.
    # Tests wait for most of their time: several at once, the longest first.
    CRITICD_BIN=$PWD/target/release/criticd CRITICD_CURVE_BIN=$PWD/$curve "$environment/bin/python" -P -m pytest "$folder" \
        --durations=5 --numprocesses 3 --maxschedchunk 1 "$@" 2>&1 |
        tee "$log" || status=$?
    local summary='^=+ .* in [0-9.]+s|^[0-9]+ (passed|failed|skipped|error|deselected).* in [0-9.]+s'
    passed=$((passed + $(count "$log" "$summary" passed)))
    local found=$(($(count "$log" "$summary" failed) + $(count "$log" "$summary" error)))
    local left_out=$(($(count "$log" "$summary" skipped) + $(count "$log" "$summary" deselected)))
    failed=$((failed + found))
    if [ "$left_out" -gt 0 ]; then skip "$left_out" "$left_out tests in $folder were left out (pytest lists them above)"; fi
    # 5: there is nothing to run, which only arguments may say.
    if [ "$status" -eq 5 ] && [ "$given" -gt 0 ]; then status=0; fi
    if [ "$status" -ne 0 ] && [ "$found" -eq 0 ]; then failed=$((failed + 1)); fi
}

# What the environment holds besides the package itself, which is installed anew each time.
wanted() { cat tests/python/requirements.txt python/pyproject.toml; }

install() {
    local pip="$environment/bin/python -m pip --quiet --disable-pip-version-check install"
    if ! wanted | cmp -s - "$environment/installed.txt"; then
        python3 -m venv --clear "$environment" && $pip -r tests/python/requirements.txt "./python[gym,test,docs]" &&
            wanted >"$environment/installed.txt" || return 1
    fi
    $pip --no-deps --no-build-isolation --force-reinstall ./python
}

python_files=$(find tests/python python/tests -name 'test_*.py' | wc -l)
environment=target/python
if [ "$built" -ne 0 ]; then
    skip "$python_files" "$python_files files of Python tests: the binary could not be built"
elif ! command -v python3 >"$logs/which"; then
    skip "$python_files" "$python_files files of Python tests: there is no python3"
elif ! install >"$logs/install" 2>&1; then
    tail -n 5 "$logs/install"
    skip "$python_files" "$python_files files of Python tests: their packages could not be installed (see $logs/install)"
else
    suite pytest tests/python "$@"
    suite pytest-package python/tests "$@"
fi

for reason in ${reasons[@]+"${reasons[@]}"}; do echo "skipped: $reason"; done
echo "$passed passed, $failed failed, $skipped skipped"
if [ "$failed" -gt 0 ]; then exit 1; fi
if [ "$skipped" -gt 0 ] && [ "${CI:-false}" = true ]; then
    echo "In CI nothing may be skipped."
    exit 1
fi
