#!/bin/sh
# Fuzzes one target for a time: run.sh TARGET SECONDS [libFuzzer flags]
#
# Works on stable Rust: the coverage instrumentation which cargo-fuzz sets up by the flags of a nightly compiler
# is asked of LLVM directly. No sanitizer is used: those need nightly, and the code fuzzed here has no unsafe of
# its own (httparse and Zstandard beneath it have, which are then checked by their outcome only). A C++ compiler is
# needed for libFuzzer itself. Starts from seeds/TARGET, keeps what it learns in corpus/TARGET, and leaves an
# input that fails in artifacts/TARGET; replay that with run.sh TARGET 1 FILE, its path being relative to this
# folder.
set -eu

if [ $# -lt 2 ]; then
    echo "usage: $0 TARGET SECONDS [libFuzzer flags]" >&2
    exit 2
fi
target=$1
seconds=$2
shift 2
cd "$(dirname "$0")"

host=$(rustc -vV | sed -n 's/^host: //p')
# A target directory of its own, and --target, without which the flags would reach build scripts too.
CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}
FUZZ_TARGET=$target
RUSTFLAGS="-Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares"
export CARGO_TARGET_DIR FUZZ_TARGET RUSTFLAGS
cargo build --profile fuzz --target "$host" -p fuzz --bin libfuzzer --features libfuzzer
program=$CARGO_TARGET_DIR/$host/fuzz/libfuzzer

mkdir -p "corpus/$target" "artifacts/$target"
if [ -f "seeds/$target.dict" ]; then
    set -- "-dict=seeds/$target.dict" "$@"
fi
# With a file to replay, libFuzzer runs that and takes no directories.
for arg in "$@"; do
    if [ -f "$arg" ]; then
        exec "$program" "$@"
    fi
done
exec "$program" -max_total_time="$seconds" -max_len=1024 \
    -artifact_prefix="artifacts/$target/" "$@" "corpus/$target" "seeds/$target"
