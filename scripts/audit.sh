#!/usr/bin/env bash
# Checks the libraries by deny.toml: licences, versions that come twice, where they come from, and known faults. The list
# of faults is on github.com; where it cannot be had, the script says so and does the rest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PWD/target/audit/bin:$PATH"

result=0 checks=(licenses bans sources)
if log=$(cargo deny fetch db 2>&1); then
    checks+=(advisories)
else
    echo "audit: known faults were NOT CHECKED, their list could not be had: $(grep . <<<"$log" | tail -n 1)"
fi
cargo deny --config deny.toml check --allow unmatched-skip "${checks[@]}" || result=1
exit "$result"
