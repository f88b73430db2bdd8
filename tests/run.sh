#!/usr/bin/env bash
# The tests of the gate: the shape of the sources (tests/shape.py), those in Rust, those in their documentation, then those in
# Python against the built program: of the daemon by a client that knows only the protocol (tests/python), and of the Python
# package (python/tests). Everything it makes stays under target/. tests/README.md says what else there is: tests/quick for one
# crate after a change, tests/nightly for what takes hours.
#
# What cannot run here (no python3, no packages to be had, no libzmq) is counted and reported as skipped; with CI=true that
# fails. Arguments go to both runs of pytest: tests/run.sh -k page.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tests/environment.sh

given=$#
passed=0 failed=0 skipped=0
reasons=()

skip() { # COUNT REASON
    skipped=$((skipped + $1))
    reasons+=("$2")
    echo "SKIPPED: $2"
}

# Sum of the numbers before a word in the summary lines of a log: count LOG LINE-PATTERN WORD
count() {
    { grep -E "$2" "$1" || true; } | { grep -oE "[0-9]+ $3" || true; } | awk '{ sum += $1 } END { print sum + 0 }'
}

# Whatever failed without being a test, a compile error for instance, must not get lost: add LOG LINE-PATTERN STATUS
add() {
    local found
    found=$(($(count "$1" "$2" failed) + $(count "$1" "$2" error) + $(count "$1" "$2" "timed out")))
    passed=$((passed + $(count "$1" "$2" passed)))
    failed=$((failed + found))
    if [ "$3" -ne 0 ] && [ "$found" -eq 0 ]; then failed=$((failed + 1)); fi
}

echo "== shape"
if ! command -v python3 >/dev/null; then
    skip 1 "the shape of the sources: there is no python3"
elif python3 tests/shape.py; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
fi

python_files=$(find tests/python python/tests -name 'test_*.py' | wc -l)
python=true
if ! prepare_environment; then
    tail -n 5 "$logs/install"
    python=false
else
    prepare_tools
fi
if ! $has_libzmq; then skip 1 "encrypted sockets (feature curve): there is no libzmq (Debian: libzmq3-dev, pkg-config)"; fi

echo "== compiling"
status=0
if has_nextest; then
    compile=(cargo nextest run --release --workspace --features "$features" --profile gate)
else
    compile=(cargo test --release --workspace --lib --bins --tests --examples --features "$features" --no-fail-fast)
fi
"${compile[@]}" --no-run || status=$?
if [ "$status" -ne 0 ]; then failed=$((failed + 1)); fi
built=$([ "$status" -eq 0 ] && [ -x target/release/criticd ] && echo true || echo false)

suite() { # LOG FOLDER ARGUMENTS...
    local log=$logs/$1 folder=$2
    shift 2
    # Away from the folder python/, so that the package is the one that was installed.
    # Tests wait for most of their time: several at once, the longest first.
    export CRITICD_BIN=$PWD/target/release/criticd
    CRITICD_CURVE_BIN=$($has_libzmq && echo "$CRITICD_BIN") \
        exec "$environment/bin/python" -P -m pytest "$folder" --durations=5 --numprocesses 3 --maxschedchunk 1 "$@" >"$log" 2>&1
}

result() { # LOG FOLDER STATUS
    local summary='^=+ .* in [0-9.]+s|^[0-9]+ (passed|failed|skipped|error|deselected).* in [0-9.]+s' log=$logs/$1 status=$3
    echo "== pytest $2"
    if [ "$status" -eq 0 ]; then tail -n 12 "$log"; else cat "$log"; fi
    # 5: there is nothing to run, which only arguments may say.
    if [ "$status" -eq 5 ] && [ "$given" -gt 0 ]; then status=0; fi
    add "$log" "$summary" "$status"
    local left_out
    left_out=$(count "$log" "$summary" skipped)
    if [ "$left_out" -gt 0 ]; then skip "$left_out" "$left_out tests in $2 were left out (see $log)"; fi
}

# Tests in Python wait for half of their time, so they run beside those in Rust.
of_daemon= of_package=
if ! $built; then
    skip "$python_files" "$python_files files of Python tests: the program could not be built"
elif ! $python; then
    skip "$python_files" "$python_files files of Python tests: their packages could not be installed (see $logs/install)"
else
    install_client
    echo "== pytest tests/python and python/tests, beside what follows (see $logs)"
    suite pytest-package python/tests "$@" &
    of_package=$!
    suite pytest tests/python "$@" &
    of_daemon=$!
    # They run on where this ends before them.
    trap 'kill "$of_package" "$of_daemon" 2>/dev/null || true' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
fi

export CRITICD_SEED_BASE=${CRITICD_SEED_BASE:-$(seeds_of_commit)}
echo "== tests in Rust (simulated worlds from seed $CRITICD_SEED_BASE on)"
status=0
"${compile[@]}" 2>&1 | tee "$logs/rust" || status=$?
add "$logs/rust" "$(has_nextest && echo '^ +Summary ' || echo '^test result:')" "$status"

echo "== examples in the documentation of the crates"
status=0
cargo test --release --workspace --doc --features "$features" >"$logs/doc" 2>&1 || status=$?
if [ "$status" -ne 0 ]; then cat "$logs/doc"; fi
add "$logs/doc" '^test result:' "$status"

if [ -n "$of_daemon" ]; then
    status=0 package=0
    wait "$of_daemon" || status=$?
    wait "$of_package" || package=$?
    result pytest tests/python "$status"
    result pytest-package python/tests "$package"
fi

for reason in ${reasons[@]+"${reasons[@]}"}; do echo "skipped: $reason"; done
echo "$passed passed, $failed failed, $skipped skipped"
if [ "$failed" -gt 0 ]; then exit 1; fi
if [ "$skipped" -gt 0 ] && [ "${CI:-false}" = true ]; then
    echo "In CI nothing may be skipped."
    exit 1
fi
