#!/usr/bin/env bash
# Counts the lines of Rust that are not tests, comments included: a line for each crate, then the sum. Tests are files
# in a folder tests/, the crate testing, files called tests.rs, *_tests.rs or testing.rs, and modules behind #[cfg(test)] at the end of a file.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

git ls-files 'crates/*.rs' 'bench/*.rs' 'fuzz/*.rs' | grep -v '/tests/\|^crates/testing/\|tests\.rs$\|testing\.rs$' | xargs awk '
    FNR == 1 { skip = 0; split(FILENAME, part, "/"); crate = part[1] == "crates" ? part[2] : part[1] }
    /^#\[cfg\(test\)\]/ {
        getline following
        if (following ~ /^mod [a-z_]+ \{/) skip = 1
        else if (!skip) lines[crate] += 2
        next
    }
    !skip { lines[crate]++ }
    END { for (crate in lines) print lines[crate], crate }
' | sort -k2 | awk '{ printf "%7d %s\n", $1, $2; sum += $1 } END { printf "%7d in all\n", sum }'
