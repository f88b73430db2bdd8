#!/usr/bin/env bash
# All tests: those in Rust, then those in Python against the release binary. Everything it makes stays under target/.
#
# What cannot run here (no python3, no packages to be had) is counted and reported as skipped; with CI=true that fails.
# Arguments go to pytest: tests/run.sh -m "not slow".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

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

echo "== cargo test --release"
status=0
cargo test --release --no-fail-fast 2>&1 | tee "$logs/cargo" || status=$?
passed=$((passed + $(count "$logs/cargo" '^test result:' passed)))
found=$(count "$logs/cargo" '^test result:' failed)
ignored=$(count "$logs/cargo" '^test result:' ignored)
failed=$((failed + found))
if [ "$ignored" -gt 0 ]; then skip "$ignored" "$ignored tests in Rust are marked as ignored"; fi
# Whatever failed without being a test, a compile error for instance, must not get lost.
if [ "$status" -ne 0 ] && [ "$found" -eq 0 ]; then failed=$((failed + 1)); fi

echo "== cargo build --release"
built=0
cargo build --release || { built=1; failed=$((failed + 1)); }

echo "== pytest tests/python"
python_files=$(find tests/python -name 'test_*.py' | wc -l)
environment=target/python
if [ "$built" -ne 0 ]; then
    skip "$python_files" "$python_files files of Python tests: the binary could not be built"
elif ! command -v python3 >"$logs/which"; then
    skip "$python_files" "$python_files files of Python tests: there is no python3"
elif ! cmp -s tests/python/requirements.txt "$environment/installed.txt" && ! {
    python3 -m venv "$environment" >"$logs/venv" 2>&1 &&
        "$environment/bin/pip" install --quiet --disable-pip-version-check -r tests/python/requirements.txt 2>&1 |
        tee "$logs/pip" && cp tests/python/requirements.txt "$environment/installed.txt"
}; then
    tail -n 5 "$logs/venv"
    skip "$python_files" "$python_files files of Python tests: their packages could not be installed (see $logs/venv, $logs/pip)"
else
    status=0
    "$environment/bin/python" -m pytest tests/python --durations=5 "$@" 2>&1 | tee "$logs/pytest" || status=$?
    summary='^=+ .* in [0-9.]+s|^[0-9]+ (passed|failed|skipped|error).* in [0-9.]+s'
    passed=$((passed + $(count "$logs/pytest" "$summary" passed)))
    found=$(($(count "$logs/pytest" "$summary" failed) + $(count "$logs/pytest" "$summary" error)))
    left_out=$(($(count "$logs/pytest" "$summary" skipped) + $(count "$logs/pytest" "$summary" deselected)))
    failed=$((failed + found))
    if [ "$left_out" -gt 0 ]; then skip "$left_out" "$left_out tests in Python were left out (pytest lists them above)"; fi
    if [ "$status" -ne 0 ] && [ "$found" -eq 0 ]; then failed=$((failed + 1)); fi
fi

for reason in ${reasons[@]+"${reasons[@]}"}; do echo "skipped: $reason"; done
echo "$passed passed, $failed failed, $skipped skipped"
if [ "$failed" -gt 0 ]; then exit 1; fi
if [ "$skipped" -gt 0 ] && [ "${CI:-false}" = true ]; then
    echo "In CI nothing may be skipped."
    exit 1
fi
