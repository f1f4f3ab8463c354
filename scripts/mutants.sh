#!/usr/bin/env bash
# Breaks the code of four crates in places drawn by a seed, and runs the crate's own tests after each break. Fails if they
# notice fewer than 90 % of the breaks that compile. A break that makes them hang counts as noticed.
#
#   mutants.sh HOST    HOST is what rustc calls this machine, such as x86_64-unknown-linux-gnu. The environment may give
#                      SEED (1), SAMPLE (40 breaks in each crate) and CRATES ("search record load audit").
#
# Property tests draw 64 cases, fewer than in `make test`: what they notice here, they notice there.
# What the seed draws depends on the crate's functions only, not on their lines: a break stays in the sample when other
# code changes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly HOST=$1 SEED=${SEED:-1} SAMPLE=${SAMPLE:-40} LEAST_PERCENT=90
export PATH="$PWD/target/mutants/bin:$PATH" CARGO_TARGET_DIR="$PWD/target/mutants/build" LC_ALL=C PROPTEST_CASES=64

# Of `load`: when requests are due, whether a trial is valid, and what is recorded. The rest needs a network.
choose() {
    local -a options=(--package "$1")
    if [[ $1 == load ]]; then
        for name in schedule share validity absence pool conclude recorder 'recorder/*'; do
            options+=(--file "crates/load/src/$name.rs")
        done
    fi
    cargo mutants --list "${options[@]}"
}

# Sorts lines by a hash of the seed and the name without its line and column.
shuffle() {
    awk -v seed="$SEED" 'BEGIN { for (i = 1; i < 256; i++) code[sprintf("%c", i)] = i }
        { name = $0; sub(/:[0-9]+:[0-9]+:/, "", name); name = seed " " name " " same[name]++; hash = 0
          for (i = 1; i <= length(name); i++) hash = (hash * 31 + code[substr(name, i, 1)]) % 2147483647
          for (i = 0; i < 3; i++) hash = hash * 48271 % 2147483647
          print hash "\t" $0 }' | sort -n | cut -f 2-
}

# Runs the sample of a crate. The tests have three times as long as without a break, and 20 s at least.
run() {
    local folder=target/mutants/$1 tests=--lib pattern status=0
    # Without integration tests, the crate need not be compiled a second time for them.
    [[ ! -d crates/$1/tests ]] || tests=--tests
    mkdir -p "$folder"
    choose "$1" | shuffle | sed -n "1,${SAMPLE}p" >"$folder/sample.txt"
    pattern=$(sed 's/[][\\.^$*+?(){}|]/\\&/g' "$folder/sample.txt" | paste -sd '|')
    # cargo-mutants 27.1.0 makes mutants "delete field" whatever --re says (its issue 632): `of` does not count them.
    cargo mutants --package "$1" $(cut -d : -f 1 "$folder/sample.txt" | sort -u | sed 's/^/--file /') \
        --re "^($pattern)\$" --output "$folder" --jobs 1 --timeout-multiplier 3 --minimum-test-timeout 20 \
        --cargo-arg=--target="$HOST" --cargo-arg="$tests" --colors never >&2 || status=$?
    # 2 and 3: some were missed, some hung.
    ((status == 0 || status == 2 || status == 3)) || exit "$status"
}

# The mutants of a crate's sample with this outcome.
of() { grep -Fxf "target/mutants/$1/sample.txt" "target/mutants/$1/mutants.out/$2.txt" || true; }
count() { of "$@" | wc -l; }

echo "seed $SEED, $SAMPLE mutants of each crate"
summary="" failed=0
for crate in ${CRATES:-search record load audit}; do
    run "$crate"
    noticed=$(($(count "$crate" caught) + $(count "$crate" timeout))) missed=$(count "$crate" missed)
    percent=$((100 * noticed / (noticed + missed > 0 ? noticed + missed : 1)))
    ((percent >= LEAST_PERCENT)) || failed=1
    summary+=$(printf '%-8s %6d %6d %7d %8d %6d %%' "$crate" "$(count "$crate" caught)" "$missed" \
        "$(count "$crate" timeout)" "$(count "$crate" unviable)" "$percent")$'\n'
done
echo "crate    caught missed timeout unviable"
printf '%s' "$summary"
for crate in ${CRATES:-search record load audit}; do of "$crate" missed | sed 's/^/missed: /'; done
exit "$failed"
