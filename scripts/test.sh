#!/usr/bin/env bash
# Runs the stages of `make test` or `make check`, every one whatever failed before it. Lists at the end what failed, and
# the tests that took longest.
#
#   test.sh HOST [check]    HOST is what rustc calls this machine, such as x86_64-unknown-linux-gnu; `check` leaves out
#                           the end-to-end tests and the samples of the bars
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly HOST=$1 PURPOSE=${2:-test}
log=$(mktemp)
beside_names=() beside_pids=()
trap 'kill "${beside_pids[@]}" 2>/dev/null; rm -f "$log" "$log".*' EXIT
failed=()
# Only an unstable option lets test programs tell how long each test took; it is for them alone, not for the compiler.
runner="CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$HOST")_RUNNER"
export "$runner=env RUSTC_BOOTSTRAP=1"
readonly TIMES=(-Z unstable-options --report-time)

# Runs a command as the stage of this name.
stage() {
    local name=$1
    shift
    echo "make $PURPOSE: $name"
    if ! "$@" 2>&1 | tee -a "$log" | sed -u 's/ <[0-9.]*s>$//'; then failed+=("$name"); fi
}

# Begins a stage that runs beside the next ones; `join` waits for all of them, and shows what they wrote.
beside() {
    beside_names+=("$1")
    shift
    "$@" >"$log.${beside_names[-1]}" 2>&1 &
    beside_pids+=($!)
}
join() {
    local at status
    for at in "${!beside_names[@]}"; do
        status=0
        wait "${beside_pids[at]}" || status=$?
        stage "${beside_names[at]}" replay "$log.${beside_names[at]}" "$status"
    done
    beside_names=() beside_pids=()
}
replay() {
    cat "$1"
    return "$2"
}

# Of what Rust's test programs print: the names of the failed tests, each with the first lines of what it said.
failed_tests() {
    awk '/^---- .* stdout ----$/ { name = $2; left = 12; print "  " name; next }
         /^(failures:|test result:)/ { left = 0 }
         left > 0 && NF { left--; print "      " substr($0, 1, 400) }' "$log"
}

# The sum of a word's counts over all test programs.
count() { awk -v word="$1" '/^test result:/ { for (i = 2; i <= NF; i++) if ($i == word ";") n += $(i - 1) } END { print n + 0 }' "$log"; }

# The twenty slowest tests. Others may have written between a test's name and its time.
slowest() {
    awk '/^test [^ ]+ \.\.\./ { name = $2 } / <[0-9.]+s>$/ { gsub(/[<>s]/, "", $NF); print $NF + 0, name }' "$log" |
        sort -rn | head -20 | awk '{ printf "  %7.1f s  %s\n", $1, $2 }'
}

stage format cargo fmt --all --check
stage clippy cargo clippy --workspace --all-targets --target "$HOST" -- -D warnings
# Tests send SIGHUP. Started by nohup, every program below would ignore it, and a shell cannot change that back. What bash runs beside
# others ignores SIGINT.
# Always the whole workspace: another choice of crates has other features, and would be compiled anew.
tests=(env --default-signal=HUP,INT cargo test --workspace --no-fail-fast --target "$HOST")
if [[ $PURPOSE == check ]]; then
    stage tests "${tests[@]}" --tests --exclude proofload-tests -- "${TIMES[@]}"
    stage house "${tests[@]}" --test house --test texts -- "${TIMES[@]}"
    stage examples-in-comments "${tests[@]}" --doc
else
    stage build "${tests[@]}" --tests --no-run
    # end_to_end.rs says what the beginnings of names mean. No other test program's name begins with an e.
    # The variable tells an inventory which processes to leave out.
    export PROOFLOAD_UNIT_TESTS=1
    beside unit-tests "${tests[@]}" --lib --bins -- "${TIMES[@]}"
    beside tests-of-crates "${tests[@]}" --test '[!e]*' -- "${TIMES[@]}"
    beside examples-in-comments "${tests[@]}" --doc
    unset PROOFLOAD_UNIT_TESTS
    stage inventories "${tests[@]}" --test end_to_end -- "${TIMES[@]}" --test-threads=1 inventory_
    join
    # These wait more than they work.
    stage end-to-end "${tests[@]}" --test end_to_end -- "${TIMES[@]}" --test-threads=$((3 * $(nproc))) --skip measured_ --skip paced_ --skip inventory_
    stage paced-samples "${tests[@]}" --test end_to_end -- "${TIMES[@]}" --test-threads=$((2 * $(nproc))) paced_
    stage measured-samples "${tests[@]}" --test end_to_end -- "${TIMES[@]}" --test-threads=1 measured_
fi

echo
echo "slowest tests:"
slowest
verdict=ok
if ((${#failed[@]})); then
    verdict=FAILED
    echo
    echo "failed stages: ${failed[*]}"
    failed_tests
fi
echo
echo "test result: $verdict. $(count passed) passed; $(count failed) failed; $(count ignored) ignored;" \
    "0 measured; 0 filtered out; finished in ${SECONDS}s"
[[ $verdict == ok ]]
