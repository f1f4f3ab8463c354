#!/usr/bin/env bash
# Counts the instructions that the measuring loop takes for a request, of each load, by callgrind: those inside
# `Worker::run` less those inside the methods of the simulated wire. The same code gives the same figures.
# docs/decisions/0016-cost-of-the-loop.md holds what they were.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

command -v valgrind >/dev/null || {
    echo "loop-cost: valgrind is missing; run: make setup-bench" >&2
    exit 2
}
PATH="$(scripts/setup.sh rust-path):$PATH"
export PATH RUSTFLAGS="-C target-feature=+crt-static"
host=$(rustc -vV | sed -n 's/^host: //p')
# The release build with its functions' names: callgrind finds by name what is counted.
cargo build -q --profile debugging --target "$host" -p bench --bin loop-cost
program=${CARGO_TARGET_DIR:-target}/$host/debugging/loop-cost

# Without one of these the figures would mean something else.
functions=$(nm --demangle "$program")
for name in 'loop_cost::run_counted' '<load::wire::simulated::SimulatedWire<T> as load::wire::Wire>::wait'; do
    [[ $functions == *" $name"* ]] || {
        echo "loop-cost: the program has no function $name; name the new one in scripts/loop-cost.sh" >&2
        exit 2
    }
done

log=$(mktemp)
trap 'rm -f "$log"' EXIT
for load in $("$program"); do
    requests=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null --log-file="$log" \
        --toggle-collect='*loop_cost::run_counted*' \
        --toggle-collect='*SimulatedWire*as load::wire::Wire*' \
        "$program" "$load")
    counted=$(sed -n 's/.*Collected : //p' "$log")
    awk -v load="$load" -v counted="$counted" -v requests="$requests" \
        'BEGIN { printf "loop-cost %-10s %.1f instructions a request\n", load, counted / requests }'
done
