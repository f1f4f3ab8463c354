# Everything there is to do with a checkout. `make` alone lists it.
#
# One static binary: the same flags and the same --target everywhere, so that every call of cargo
# finds what the others have built. --target also keeps the flags from procedural macros, which
# cannot be static.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help build try test check bench prove fuzz fmt docs count clean setup-build setup-test setup-bench

SHELL := /bin/bash

# Looked up when a recipe runs: setup.sh may have installed Rust a moment before.
RUST = export PATH="$$(scripts/setup.sh rust-path):$$PATH" RUSTFLAGS="-C target-feature=+crt-static" && \
       host=$$(rustc -vV | sed -n 's/^host: //p') &&
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
BINARY = export PROOFLOAD_BIN="$$(realpath $(TARGET_DIR))/$$host/release/proofload" &&

help:
	@echo "proofload: make TARGET"
	@echo "  build   the static binary                                     3 min at first, then seconds"
	@echo "  try     a first look: the rate our own target sustains        90 s after the build"
	@echo "  test    format, lints, all tests, a sample of every bar       25 min at first, then 12"
	@echo "  check   format, lints, unit tests and oracles; no samples     2 min once built"
	@echo "  prove   lists the bars; NAME=pacing or NAME=all proves them   20 min for all"
	@echo "  bench   beside wrk, ab, h2load and oha                        25 min"
	@echo "  fuzz    the HTTP parsers; FUZZ_SECONDS=600                    10 min"
	@echo "  fmt     formats the code"
	@echo "  docs    the picture of docs/architecture.md, and tests/messages.txt"
	@echo "  count   lines that are not tests, by crate"
	@echo "  clean   removes what was built and measured"
	@echo "Missing packages are installed on Debian (as root or by sudo) and named elsewhere."

setup-build:
	@scripts/setup.sh build
setup-test:
	@scripts/setup.sh test
setup-bench:
	@scripts/setup.sh bench

build: setup-build
	@echo "make build: compiling the static binary; 3 minutes at first, then seconds"
	@$(RUST) cargo build --release --target $$host -p proofload --bin proofload && \
	  echo "built $(TARGET_DIR)/$$host/release/proofload"

try: build
	@echo "make try: searches the sustainable rate of our own target and leaves a report; 90 s at the most"
	@$(RUST) $(BINARY) scripts/try.sh

test: setup-test build
	@echo "make test: format, lints, tests, then a sample of every bar; 25 minutes at first, then 12"
	@$(RUST) $(BINARY) scripts/test.sh $$host

check: setup-test
	@echo "make check: format, lints, unit tests and oracles; 2 minutes once built"
	@$(RUST) scripts/test.sh $$host check

prove: setup-test build
	@echo "make prove: the bars at their full size; durations are in the list"
	@$(RUST) $(BINARY) cargo run --release --target $$host -q -p proofload-tests --bin prove -- $(NAME)

bench: setup-bench build
	@echo "make bench: proofload beside its peers; 25 minutes, during which nothing else should run"
	@$(RUST) $(BINARY) cargo run --release --target $$host -q -p bench -- $(BENCH_ARGS)

FUZZ_SECONDS ?= 600
fuzz: setup-test
	@echo "make fuzz: the HTTP parsers under libFuzzer for $(FUZZ_SECONDS) s, after a minute of compiling"
	@$(RUST) unset RUSTFLAGS && fuzz/run.sh http1 $(FUZZ_SECONDS)

fmt: setup-test
	@echo "make fmt: formatting the code; seconds"
	@$(RUST) cargo fmt --all

docs: setup-test
	@echo "make docs: drawing the rooms, and collecting every message; a minute after the build"
	@$(RUST) UPDATE_DOCS=1 UPDATE_MESSAGES=1 cargo test -q --target $$host -p proofload-tests --test house --test texts

count:
	@scripts/count-lines.sh

clean:
	@echo "make clean: removing what was built and measured; seconds"
	@rm -rf target results fuzz/target fuzz/corpus fuzz/artifacts
