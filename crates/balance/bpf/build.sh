#!/usr/bin/env bash
# Builds the BPF programs into the folder that is given, the one that they lie in unless given. Debian's clang 14 builds what is
# committed, byte for byte.
set -euo pipefail
into=$(realpath "${1:-$(dirname "${BASH_SOURCE[0]}")}")
cd "$(dirname "${BASH_SOURCE[0]}")"

# build SOURCE OBJECT [OPTION...]
build() {
    local source=$1 object=$into/$2
    shift 2
    # Line numbers name the file, so no folder may be part of its name.
    clang -g -O2 -Wall -Werror -target bpf -mcpu=v3 -fdebug-compilation-dir=. "-I/usr/include/$(uname -m)-linux-gnu" "$@" \
        -c "$source" -o "$object"
    # Types stay, which the loader needs. The rest is for debuggers.
    llvm-strip --strip-debug "$object"
}

build l2dsr.bpf.c l2dsr_cls.bpf.o
build l2dsr.bpf.c l2dsr_xdp.bpf.o -DXDP
