# Everything there is to do with a checkout. `make` alone lists it.
#
# One static binary: the same flags and the same --target everywhere, so that every call of cargo
# finds what the others have built. --target also keeps the flags from procedural macros, which
# cannot be static.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help build try test check bench prove fuzz fmt docs mutants audit release count clean setup-build setup-test setup-services setup-bench setup-mutants setup-audit

SHELL := /bin/bash

# Looked up when a recipe runs: setup.sh may have installed Rust a moment before.
RUST = export PATH="$$(scripts/setup.sh rust-path):$$PATH" RUSTFLAGS="-C target-feature=+crt-static" && \
       host=$$(rustc -vV | sed -n 's/^host: //p') &&
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
BINARY = export PROOFLOAD_BIN="$$(realpath $(TARGET_DIR))/$$host/release/proofload" &&

help:
	@echo "proofload: make TARGET"
	@echo "  build   the static binary                                     5 min at first, then seconds"
	@echo "  try     a first look: the rate our own target sustains        90 s after the build"
	@echo "  test    format, lints, all tests; no machine can change it    20 min at first, then 5"
	@echo "  check   format, lints, unit tests and oracles; no samples     2 min once built"
	@echo "  prove   lists the bars; NAME=pacing or NAME=all proves them   10 h for all"
	@echo "          NAME=samples reports a little of what time can turn   6 min"
	@echo "  bench   beside other generators and copiers                   35 min"
	@echo "  fuzz    the parsers of untrusted input; FUZZ_SECONDS=600 each         55 min"
	@echo "  mutants breaks code in places that SEED=1 draws; do tests notice? 30 min"
	@echo "  audit   licences, versions and advisories of the libraries    15 min at first, then seconds"
	@echo "  release binary, man pages, completions, Debian package        5 min"
	@echo "  fmt     formats the code"
	@echo "  docs    writes what is generated from the code: schemas, tables, messages"
	@echo "  count   lines that are not tests, by crate"
	@echo "  clean   removes what was built and measured"
	@echo "Missing packages are installed on Debian (as root or by sudo) and named elsewhere."

setup-build:
	@scripts/setup.sh build
setup-test:
	@scripts/setup.sh test
setup-services:
	@scripts/setup.sh services
setup-bench:
	@scripts/setup.sh bench
setup-mutants:
	@scripts/setup.sh mutants
setup-audit:
	@scripts/setup.sh audit

build: setup-build
	@echo "make build: compiling the static binary; 5 minutes at first, then seconds"
	@$(RUST) cargo build --release --target $$host -p proofload --bin proofload && \
	  echo "built $(TARGET_DIR)/$$host/release/proofload"

try: build
	@echo "make try: searches the sustainable rate of our own target and leaves a report; 90 s at the most"
	@$(RUST) $(BINARY) scripts/try.sh

test: setup-test build
	@echo "make test: format, lints, tests, what samples of the bars count; 20 minutes at first, then 5"
	@$(RUST) $(BINARY) scripts/test.sh $$host

check: setup-test
	@echo "make check: format, lints, unit tests and oracles; 2 minutes once built"
	@$(RUST) scripts/test.sh $$host check

# Only these bars ask services that nobody else needs here.
prove: setup-test $(if $(filter first-contact cause-table all,$(NAME)),setup-services) build
	@echo "make prove: the bars at their full size; durations are in the list"
	@$(RUST) $(BINARY) cargo test -q --workspace --target $$host --test end_to_end --no-run && \
	  $(TARGET_DIR)/$$host/debug/prove $(NAME)

bench: setup-bench build
	@echo "make bench: proofload beside its peers; 35 minutes, during which nothing else should run"
	@$(RUST) $(BINARY) cargo run --release --target $$host -q -p bench -- $(BENCH_ARGS)

FUZZ_SECONDS ?= 600
fuzz: setup-test
	@echo "make fuzz: the parsers of untrusted input under libFuzzer for $(FUZZ_SECONDS) s each, after 5 minutes of compiling"
	@$(RUST) for target in http1 answers events sftp study_file; do fuzz/run.sh $$target $(FUZZ_SECONDS) || exit; done

fmt: setup-test
	@echo "make fmt: formatting the code; seconds"
	@$(RUST) cargo fmt --all

docs: setup-test
	@echo "make docs: writing what is generated from the code: schemas, tables of options, the map, messages; seconds once tests are built"
	@$(RUST) UPDATE_DOCS=1 cargo test -q --workspace --target $$host --tests -- \
	  the_published the_documented the_map every_message

mutants: setup-mutants
	@echo "make mutants: 40 breaks in each of four crates, and their tests after each; 30 minutes"
	@$(RUST) scripts/mutants.sh $$host

audit: setup-audit
	@echo "make audit: licences, versions and advisories of the libraries; seconds"
	@$(RUST) scripts/audit.sh

release: setup-build
	@echo "make release: the binary, man pages, completions, a Debian package and checksums; 5 minutes"
	@$(RUST) scripts/release.sh $$host

count:
	@scripts/count-lines.sh

clean:
	@echo "make clean: removing what was built and measured; seconds"
	@rm -rf target results fuzz/target fuzz/corpus fuzz/artifacts
