#!/usr/bin/env bash
# Counts the instructions that the measuring loop takes for a request, of each load, by callgrind: those inside
# `Worker::run` less those inside the methods of the simulated wire. The same code gives the same figures.
# docs/decisions/0016-cost-of-the-loop.md tells why.
#
#   loop-cost.sh          prints the figures
#   loop-cost.sh check    fails if one is above 1.02 of what bench/loop-cost/figures.txt says, where compiler and processor are those
#                         that the file names; elsewhere it prints them
#   loop-cost.sh write    writes that file
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

command -v valgrind >/dev/null || {
    echo "loop-cost: valgrind is missing; run: make setup-bench" >&2
    exit 2
}
PATH="$(scripts/setup.sh rust-path):$PATH"
export PATH RUSTFLAGS="-C target-feature=+crt-static"
host=$(rustc -vV | sed -n 's/^host: //p')
# The release build, which keeps its functions' names: callgrind finds by name what is counted.
# With the features of the whole program, whose libraries are there then.
cargo build -q --release --target "$host" -p proofload -p loop-cost --bin loop-cost
program=${CARGO_TARGET_DIR:-target}/$host/release/loop-cost
readonly FILE=bench/loop-cost/figures.txt LARGEST=1.02

# Without one of these the figures would mean something else.
functions=$(nm --demangle "$program")
for name in 'loop_cost::run_counted' '<load::wire::simulated::SimulatedWire<T> as load::wire::Wire>::wait'; do
    [[ $functions == *" $name"* ]] || {
        echo "loop-cost: the program has no function $name; name the new one in scripts/loop-cost.sh" >&2
        exit 2
    }
done

# What the figures belong to: the compiler, and the processor, by which the C library chooses its functions.
owner() {
    rustc --version
    awk -F '\t*: ' '/^(vendor_id|cpu family|model|stepping)\t/ && !seen[$1]++ { printf "%s%s", separator, $2; separator = " " }
        END { print "" }' /proc/cpuinfo
}

log=$(mktemp)
trap 'rm -f "$log" "$log.figures"' EXIT
for load in $("$program"); do
    requests=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null --log-file="$log" \
        --toggle-collect='*loop_cost::run_counted*' \
        --toggle-collect='*SimulatedWire*as load::wire::Wire*' \
        "$program" "$load")
    counted=$(sed -n 's/.*Collected : //p' "$log")
    awk -v load="$load" -v counted="$counted" -v requests="$requests" \
        'BEGIN { printf "loop-cost %-10s %.1f instructions a request\n", load, counted / requests }' | tee -a "$log.figures"
done
case ${1:-} in
write) { owner && cat "$log.figures"; } >"$FILE" ;;
check)
    if [[ $(owner) != "$(head -n 2 "$FILE")" ]]; then
        echo "loop-cost: not judged: the figures of $FILE belong to $(head -n 2 "$FILE" | paste -sd ,)"
        exit
    fi
    # Both files have the same lines in the same order.
    paste -d ' ' <(tail -n +3 "$FILE") "$log.figures" | awk -v largest="$LARGEST" '{
        ratio = $9 / $3
        is_larger = ratio > largest || $2 != $8
        failed += is_larger
        printf "loop-cost %-10s %.4f of the committed figure%s\n", $2, ratio, is_larger ? ", too many" : ""
    } END { exit failed > 0 || NR == 0 }'
    ;;
esac
