#!/usr/bin/env bash
# Runs the stages of `make test`, every one whatever failed before it, and lists at the end what failed.
#
#   test.sh HOST    HOST is what rustc calls this machine, such as x86_64-unknown-linux-gnu
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly HOST=$1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=()

# Runs a command as the stage of this name.
stage() {
    local name=$1
    shift
    echo "make test: $name"
    if ! "$@" 2>&1 | tee -a "$log"; then failed+=("$name"); fi
}

# Of what Rust's test programs print, the names below the last `failures:` of each.
failed_tests() {
    awk '/^failures:$/ { names = ""; listed = 1; next }
         /^test result:/ { printf "%s", names; names = ""; listed = 0; next }
         listed && /^    [^ ]+$/ { names = names $0 "\n" }' "$log"
}

# The sum of a word's counts over all test programs.
count() { awk -v word="$1" '/^test result:/ { for (i = 2; i <= NF; i++) if ($i == word ";") n += $(i - 1) } END { print n + 0 }' "$log"; }

stage format cargo fmt --all --check
stage clippy cargo clippy --workspace --all-targets --target "$HOST" -- -D warnings
# Tests send SIGHUP. Started by nohup, every program below would ignore it, and a shell cannot change that back.
stage tests env --default-signal=HUP cargo test --workspace --no-fail-fast --target "$HOST" -- --skip sample_of_
# One at a time: samples measure.
stage samples env --default-signal=HUP cargo test -p proofload-tests --target "$HOST" --test end_to_end -- --test-threads=1 sample_of_

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
