#!/usr/bin/env bash
# Coverage-guided fuzzing, all targets at once: fuzz/run.sh [SECONDS [TARGET...]]
#
# Any toolchain does: coverage needs no nightly, and `criticd` has no `unsafe` for a sanitizer to look into. Only the crates of the workspace are instrumented (fuzz/instrumented), so that what a release build has
# compiled of the dependencies is used again. New inputs and what fails go to target/fuzz/; the corpora stay as they are.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:-60}
shift || true
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then targets=(wire gate journal checkpoint); fi

profile=${CRITICD_FUZZ_PROFILE:-release}
RUSTC_WORKSPACE_WRAPPER=$PWD/fuzz/instrumented cargo build --locked --profile "$profile" -p criticd-fuzz --features libfuzzer --bins
folder=target/${profile/dev/debug}
running=()
for target in "${targets[@]}"; do
    found=target/fuzz/$target
    mkdir -p "$found"
    "$folder/$target" "$found" "fuzz/corpus/$target" -seed=1 -max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 \
        -artifact_prefix="$found-" -print_final_stats=1 >"$found.log" 2>&1 &
    running+=("$!")
done
failed=0
for i in "${!targets[@]}"; do
    target=${targets[$i]}
    log=target/fuzz/$target.log
    if wait "${running[$i]}"; then
        executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        covered=$(sed -n 's/.* cov: \([0-9]*\) ft.*/\1/p' "$log" | tail -n 1)
        echo "$target: $executed executions, $covered edges covered"
    else
        tail -n 40 "$log"
        echo "$target: failed; the input is target/fuzz/$target-*"
        failed=1
    fi
done
exit "$failed"
