#!/usr/bin/env bash
# Runs the stages of `make test` or `make check`, every one whatever failed before it. Lists at the end what failed, and
# the tests that took longest.
#
#   test.sh HOST [check]    HOST is what rustc calls this machine, such as x86_64-unknown-linux-gnu; `check` leaves out
#                           the end-to-end tests and the samples of the bars. The environment may give TEST_SCRIPTS, where
#                           inventory.sh, loop-cost.sh and check-placement.sh are.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly HOST=$1 PURPOSE=${2:-test} SCRIPTS=${TEST_SCRIPTS:-scripts}
# Programs of the tests keep their files here, also those that a killed test leaves. Other users must get through.
place=$(mktemp -d)
chmod 755 "$place"
mkdir "$place/tmp"
chmod 1777 "$place/tmp"
readonly log=$place/log
beside_names=() beside_pids=()
trap 'kill "${beside_pids[@]}" 2>/dev/null; rm -rf "$place"' EXIT
failed=() ignored=0
export TMPDIR=$place/tmp PROOFLOAD_STATE_DIR=$place/state
# What the tests accepted or left out, a line each. Whatever they leave running has it in its environment.
export PROOFLOAD_TEST_NOTES=$place/notes
: >"$PROOFLOAD_TEST_NOTES"
# Properties are tested on the same cases each time: chance decides no test. `make prove NAME=properties` draws others.
export PROPTEST_RNG_SEED=1
# Tests only compare.
export INSTA_UPDATE=no
unset UPDATE_DOCS
# Only an unstable option lets test programs tell how long each test took; it is for them alone, not for the compiler.
runner="CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$HOST")_RUNNER"
export "$runner=env RUSTC_BOOTSTRAP=1"
readonly TIMES=(-Z unstable-options --report-time)

# Runs a command as the stage of this name.
stage() {
    local name=$1
    shift
    echo "make $PURPOSE: $name, after $SECONDS s"
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

# What there is on this machine must be the same before the first test and after the last one. The kernel takes namespaces
# and control groups down when it has time.
inventory() { "$SCRIPTS/inventory.sh" "PROOFLOAD_TEST_NOTES=$PROOFLOAD_TEST_NOTES" >"$place/$1"; }
nothing_left() {
    local second
    for second in {1..60}; do
        inventory after
        ! cmp -s "$place/before" "$place/after" || return 0
        sleep 1
    done
    echo "left (+) or changed on this machine:"
    diff "$place/before" "$place/after" | sed -n 's/^</  -/p; s/^>/  +/p'
    return 1
}

# How often tests accepted a void trial and left something out, and why.
told() {
    local kind
    for kind in "void accepted" skipped; do
        echo "$kind: $(grep -c "^$kind: " "$PROOFLOAD_TEST_NOTES") times"
        # The reason stands last.
        sed -n "s/^$kind: .*: //p" "$PROOFLOAD_TEST_NOTES" | sort | uniq -c | sort -rn
    done
}

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
# Only root may load BPF programs, and give files away: without it, these tests are ignored. From outside, all of a balancer do.
root=() root_outside=()
if ((EUID != 0)); then
    root=(--skip as_root) root_outside=(--skip as_root --skip balance:: --skip balance_)
    ignored=$({
        "${tests[@]}" --tests -- --list as_root
        "${tests[@]}" --test end_to_end -- --list balance:: balance_
    } 2>/dev/null | grep -c ': test$')
fi
if [[ $PURPOSE == check ]]; then
    stage tests "${tests[@]}" --tests --exclude proofload-tests -- "${TIMES[@]}" "${root[@]}"
    stage house "${tests[@]}" --test house --test texts -- "${TIMES[@]}"
    stage examples-in-comments "${tests[@]}" --doc
else
    stage build "${tests[@]}" --tests --no-run
    inventory before
    # end_to_end.rs says what the beginnings of names mean. No other test program's name begins with an e.
    # The variable tells an inventory which processes to leave out.
    export PROOFLOAD_UNIT_TESTS=1
    beside unit-tests "${tests[@]}" --lib --bins -- "${TIMES[@]}" "${root[@]}"
    beside tests-of-crates "${tests[@]}" --test '[!e]*' -- "${TIMES[@]}" "${root[@]}"
    beside examples-in-comments "${tests[@]}" --doc
    beside virtual-machines "${tests[@]}" --test end_to_end -- "${TIMES[@]}" --test-threads="$(nproc)" "${root_outside[@]}" in_a_vm_
    unset PROOFLOAD_UNIT_TESTS
    stage inventories "${tests[@]}" --test end_to_end -- "${TIMES[@]}" --test-threads=1 "${root_outside[@]}" inventory_
    join
    # Counts instructions, which nothing else on the machine changes.
    beside loop-cost "$SCRIPTS/loop-cost.sh" check
    beside placement "$SCRIPTS/check-placement.sh"
    # These wait more than they work.
    stage end-to-end "${tests[@]}" --test end_to_end -- "${TIMES[@]}" --test-threads=$((3 * $(nproc))) "${root_outside[@]}" --skip inventory_ --skip in_a_vm_
    join
    stage nothing-left nothing_left
fi

echo
echo "slowest tests:"
slowest
told
verdict=ok
if ((${#failed[@]})); then
    verdict=FAILED
    echo
    echo "failed stages: ${failed[*]}"
    failed_tests
fi
echo
echo "test result: $verdict. $(count passed) passed; $(count failed) failed; $(($(count ignored) + ignored)) ignored;" \
    "0 measured; 0 filtered out; finished in ${SECONDS}s"
[[ $verdict == ok ]]
