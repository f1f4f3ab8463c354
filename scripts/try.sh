#!/usr/bin/env bash
# A first look: which rate does our own target sustain with a 99th percentile of 10 ms? A study with a report to
# open. Target and load have a network of their own; nothing is left of it afterwards.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

proofload=${PROOFLOAD_BIN:?run this by make try, which builds the binary}
results="results/try-$(date +%Y%m%d-%H%M%S)"
status=0

echo "\$ proofload run studies/quickstart.toml --out $results"
"$proofload" run studies/quickstart.toml --out "$results" || status=$?
case $status in
0) ;;
1) echo "(exit status 1: the least load of the search did not meet the goal)" ;;
3) echo "(exit status 3: the trials are void, the machine was too busy to measure; their reasons are in the report)" ;;
*)
    echo "try: the study ended with status $status" >&2
    exit "$status"
    ;;
esac
echo
echo "Open $results/report.html in a browser: it needs no network."
echo "Next: proofload limit rate URL --p99 10ms finds the same of a service of yours."
