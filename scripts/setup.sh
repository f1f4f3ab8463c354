#!/usr/bin/env bash
# Installs what a purpose needs and this machine lacks.
#
#   setup.sh build|test|services|bench|mutants|audit   installs (on Debian) or names (elsewhere) what is missing
#   setup.sh rust-path                                 prints the folder of a cargo that is new enough
#
# Does nothing, and asks nobody, when nothing is missing. Installs only as root or by sudo, starts no
# service, and leaves none enabled.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly RUST_NEEDED=89 # 1.89: the workspace's rust-version
readonly OHA_VERSION=1.16.0
readonly MUTANTS_VERSION=27.1.0
readonly DENY_VERSION=0.20.2

say() { echo "setup: $*" >&2; }

refuse() {
    say "$*"
    exit 2
}

# The minor version of a 1.x cargo; 0 if it does not run (a rustup proxy without a toolchain).
cargo_minor() {
    local version
    version=$("$1" --version 2>/dev/null) || version=""
    if [[ $version =~ ^cargo\ 1\.([0-9]+) ]]; then echo "${BASH_REMATCH[1]}"; else echo 0; fi
}

# The first folder with a new enough cargo, and rustc beside it: the search path as it is, rustup's
# usual place, Debian's.
rust_path() {
    local folder
    local IFS=:
    for folder in $PATH "${CARGO_HOME:-${HOME:-/root}/.cargo}/bin" /usr/bin; do
        if [[ -x $folder/cargo && -x $folder/rustc ]] && (($(cargo_minor "$folder/cargo") >= RUST_NEEDED)); then
            echo "$folder"
            return
        fi
    done
    return 1
}

has() { PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1; }

# A linker, and the static C library that the binary is linked with.
links() {
    has cc || return 1
    local library
    library=$(cc -print-file-name=libc.a 2>/dev/null) || return 1
    [[ $library == /* && -e $library ]]
}

# Debian has it in two packages, of which one replaces the other.
static_busybox() {
    has busybox && ! ldd "$(PATH="$PATH:/usr/sbin:/sbin" command -v busybox)" 2>/dev/null | grep -q "=>"
}

# Collects in `packages` what is missing for a purpose.
find_missing() {
    packages=()
    links || packages+=(gcc libc6-dev)
    [[ -e /etc/ssl/certs/ca-certificates.crt ]] || packages+=(ca-certificates)
    if [[ $1 == test || $1 == bench ]]; then
        has nginx || packages+=(nginx-light)
    fi
    if [[ $1 == test ]]; then
        has c++ || packages+=(g++) # libFuzzer
        # The machine that boots Debian's kernel, and what it holds.
        has qemu-system-x86_64 || packages+=(qemu-system-x86)
        static_busybox || packages+=(busybox-static)
        has tc || packages+=(iproute2)
        has ipvsadm || packages+=(ipvsadm)
        has nft || packages+=(nftables)
        has ping || packages+=(iputils-ping)
        has iperf3 || packages+=(iperf3)
        has socat || packages+=(socat)
        # The disk of a machine whose power is cut: made by the one, read by the other.
        has mkfs.ext4 && has debugfs || packages+=(e2fsprogs)
        # What runs in the labs of the tests.
        has haproxy || packages+=(haproxy)
        # What moves a VIP from a balancer to another.
        has keepalived || packages+=(keepalived)
        has tinyproxy || packages+=(tinyproxy-bin)
        has sshd || packages+=(openssh-server)
        has ssh || packages+=(openssh-client)
        [[ -x /usr/lib/openssh/sftp-server ]] || packages+=(openssh-sftp-server)
        has rsync || packages+=(rsync)
        # A server of SSH with small windows.
        has dropbear || packages+=(dropbear-bin)
        has rclone || packages+=(rclone)
        has lftp || packages+=(lftp)
        has curl || packages+=(curl)
        # Whose command lines are taken: what they send is compared.
        has wrk || packages+=(wrk)
        has ab || packages+=(apache2-utils)
        # What the BPF programs are built with.
        has clang || packages+=(clang)
        has llvm-strip || packages+=(llvm)
        [[ -e /usr/include/bpf/bpf_helpers.h ]] || packages+=(libbpf-dev)
        has xz || packages+=(xz-utils)
        # What Debian calls minimal lacks modules.
        python3 -c "import resource, socket" 2>/dev/null || packages+=(python3)
        has sysctl || packages+=(procps)
        has openssl || packages+=(openssl)
        has systemd-socket-activate || packages+=(systemd)
        # The instructions of the measuring loop are counted by it.
        has valgrind || packages+=(valgrind)
        [[ -x /usr/bin/time ]] || packages+=(time)
        # What reports are opened in.
        has chromium || packages+=(chromium)
        # What checks ansible/ and kubernetes/ comes from PyPI, into a folder of its own.
        python3 -c "import ensurepip, venv" 2>/dev/null || packages+=(python3-venv)
        # Unpacks our OCI image.
        has umoci || packages+=(umoci)
        # Builds the machines that playbooks are played into.
        has mmdebstrap || packages+=(mmdebstrap)
        # The broker between controllers and agents.
        has nats-server || packages+=(nats-server)
    fi
    if [[ $1 == services ]]; then
        # Services as a user has them, beside nginx.
        has node || packages+=(nodejs)
        has go || packages+=(golang-go)
    fi
    if [[ $1 == bench ]]; then
        has wrk || packages+=(wrk)
        # What copies beside proofload copy, over Debian's sshd.
        has sshd || packages+=(openssh-server)
        has scp || packages+=(openssh-client)
        [[ -x /usr/lib/openssh/sftp-server ]] || packages+=(openssh-sftp-server)
        has rsync || packages+=(rsync)
        has rclone || packages+=(rclone)
        has lftp || packages+=(lftp)
        has ab || packages+=(apache2-utils)
        has h2load || packages+=(nghttp2-client)
        has valgrind || packages+=(valgrind)
    fi
}

# What Rust has that the tests want: its formatter and its lints.
rust_tools_missing() {
    local folder=$1
    [[ -x $folder/cargo-fmt && -x $folder/cargo-clippy ]] || return 0
    # rustup puts proxies there even for components that a toolchain lacks.
    ! "$folder/cargo-fmt" --version >/dev/null 2>&1 || ! "$folder/cargo-clippy" --version >/dev/null 2>&1
}

is_debian() { [[ -r /etc/debian_version ]] && has apt-get; }

as_root() {
    if ((EUID == 0)); then
        "$@"
    elif has sudo; then
        # Nobody can type a password where there is no terminal.
        if [[ -t 0 ]]; then sudo -- "$@"; else sudo -n -- "$@"; fi
    else
        refuse "root is needed, and there is no sudo; as root run: $*"
    fi
}

# The minor version of Rust that a package would bring.
candidate_minor() {
    local line
    line=$(apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: //p')
    if [[ $line =~ ^([0-9]+:)?1\.([0-9]+) ]]; then echo "${BASH_REMATCH[2]}"; else echo 0; fi
}

# Which of Debian's packages bring a Rust that is new enough. Releases carry a second, newer one for
# the browsers, under the suffix -web.
add_debian_rust() {
    local purpose=$1
    if (($(candidate_minor cargo-web) >= RUST_NEEDED)); then
        packages+=(cargo-web rustc-web)
        [[ $purpose != test ]] || packages+=(rustfmt-web rust-web-clippy)
    elif (($(candidate_minor cargo) >= RUST_NEEDED)); then
        packages+=(cargo rustc)
        [[ $purpose != test ]] || packages+=(rustfmt rust-clippy)
    else
        refuse "Rust 1.$RUST_NEEDED or newer is needed and this release has none (on Debian 12 it comes from" \
            "bookworm-security): install it with rustup, https://rustup.rs, and run this again"
    fi
}

# Debian starts what it installs. A policy that forbids it is put in the way meanwhile.
POLICY=/usr/sbin/policy-rc.d
install_packages() {
    # The services that come with what is installed here; those that were there before stay as they are.
    local new_services=""
    has nginx || new_services+=" nginx"
    has haproxy || new_services+=" haproxy"
    has keepalived || new_services+=" keepalived"
    has sshd || new_services+=" ssh ssh.socket"
    has nats-server || new_services+=" nats-server"
    say "installing ${packages[*]}; about a minute"
    as_root env DEBIAN_FRONTEND=noninteractive POLICY="$POLICY" NEW_SERVICES="$new_services" \
        bash -euo pipefail -c '
            saved=""
            restore() {
                rm -f "$POLICY"
                [[ -z $saved ]] || mv "$saved" "$POLICY"
            }
            if [[ -e $POLICY ]]; then
                saved=$(mktemp "$POLICY.XXXXXX")
                mv "$POLICY" "$saved"
            fi
            trap restore EXIT
            trap "exit 130" INT TERM
            printf "#!/bin/sh\nexit 101\n" >"$POLICY"
            chmod 755 "$POLICY"
            log=$(mktemp)
            if ! apt-get install -y -q --no-install-recommends "$@" >"$log" 2>&1; then
                tail -n 30 "$log" >&2
                echo "setup: apt-get could not install $*; its log is $log" >&2
                exit 2
            fi
            rm -f "$log"
            if command -v systemctl >/dev/null; then
                for service in $NEW_SERVICES; do
                    systemctl disable --quiet "$service" 2>/dev/null || true
                done
            fi
        ' setup "${packages[@]}"
}

update_lists() {
    say "reading the package lists; seconds"
    as_root apt-get update -q >/dev/null || refuse "apt-get update failed; is the network up?"
}

# Builds a program of crates.io: its name, its version, the folder it is installed into.
build_program() {
    local name=$1 version=$2 into=$3 folder
    say "building $name $version into $into, once; minutes"
    folder=$(rust_path)
    # Elsewhere than our own artefacts, and without our flags: it is built as its authors build it.
    PATH="$folder:$PATH" RUSTFLAGS="" CARGO_TARGET_DIR="$into/build" \
        cargo install "$name" --version "$version" --locked --quiet --root "$into" || return
    rm -rf "$into/build"
}

install_oha() {
    [[ -x target/peers/bin/oha ]] && return
    if has oha && [[ $(oha --version) == "oha $OHA_VERSION" ]]; then return; fi
    build_program oha "$OHA_VERSION" target/peers ||
        say "oha could not be built; the benchmark goes on without it"
}

# Of this version only: others make other mutants, and a seed would draw another sample.
install_mutants() {
    local program=target/mutants/bin/cargo-mutants
    [[ -x $program && $("$program" mutants --version) == "cargo-mutants $MUTANTS_VERSION" ]] && return
    build_program cargo-mutants "$MUTANTS_VERSION" target/mutants ||
        refuse "cargo-mutants could not be built; is the network up?"
}

install_deny() {
    [[ -x target/audit/bin/cargo-deny ]] && return
    if has cargo-deny && [[ $(cargo-deny --version) == "cargo-deny $DENY_VERSION" ]]; then return; fi
    build_program cargo-deny "$DENY_VERSION" target/audit || refuse "cargo-deny could not be built; is the network up?"
}

# What checks ansible/ and kubernetes/. The list of what is installed is written last.
PLACEMENT_FOLDER=target/placement
install_placement() {
    local list=tests/placement/requirements.txt
    cmp --silent "$list" "$PLACEMENT_FOLDER/requirements.txt" && return
    say "installing ansible-lint and kubernetes-validate into $PLACEMENT_FOLDER, once; a minute"
    rm -rf "$PLACEMENT_FOLDER"
    if ! python3 -m venv "$PLACEMENT_FOLDER" ||
        ! "$PLACEMENT_FOLDER/bin/pip" install --quiet --no-deps --requirement "$list"; then
        refuse "$list could not be installed; is the network up?"
    fi
    cp "$list" "$PLACEMENT_FOLDER/requirements.txt"
}

# Debian's kernel for virtual machines, unpacked for the tests to boot and not installed.
KERNEL_FOLDER=target/vm/kernel
fetch_kernel() {
    [[ -d $KERNEL_FOLDER ]] && return
    is_debian || refuse "this is not Debian; unpack its package linux-image-cloud-amd64 (the one it depends" \
        "on, with boot and lib/modules) into $KERNEL_FOLDER, then run this again"
    local package scratch attempt
    mkdir -p target/vm
    scratch=$(mktemp -d target/vm/fetch.XXXXXX)
    # The lists may be so old that the archive no longer has what they name.
    for attempt in first second; do
        package=$(apt-cache depends --important linux-image-cloud-amd64 2>/dev/null |
            sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
        say "fetching ${package:-the kernel} into $KERNEL_FOLDER, once; 27 MB, seconds"
        if [[ -n $package ]] &&
            (cd "$scratch" && apt-get download -q "$package" >log 2>&1 && dpkg-deb -x ./*.deb tree); then
            mv "$scratch/tree" "$KERNEL_FOLDER"
            rm -rf "$scratch"
            return
        fi
        [[ $attempt == second ]] || update_lists
    done
    [[ ! -e $scratch/log ]] || tail -n 5 "$scratch/log" >&2
    rm -rf "$scratch"
    refuse "linux-image-cloud-amd64 could not be fetched; is the network up?"
}

setup() {
    local purpose=$1 folder="" rust=found
    local -a packages
    find_missing "$purpose"
    if folder=$(rust_path); then
        if [[ $purpose == test ]] && rust_tools_missing "$folder"; then rust=tools; fi
    else
        rust=missing
    fi
    if [[ $rust == tools && -x $folder/rustup ]]; then
        say "adding rustfmt and clippy to the toolchain; seconds"
        "$folder/rustup" component add rustfmt clippy >/dev/null 2>&1 ||
            refuse "rustup could not add them; run: rustup component add rustfmt clippy"
        rust=found
    fi
    if ((${#packages[@]} > 0)) || [[ $rust != found ]]; then
        is_debian || refuse "this is not Debian; install what these packages bring, then run this again:" \
            "${packages[*]}$([[ $rust == found ]] || echo " Rust 1.$RUST_NEEDED or newer with rustfmt and clippy (https://rustup.rs)")"
        update_lists
        [[ $rust == found ]] || add_debian_rust "$purpose"
        install_packages
        rust_path >/dev/null || refuse "cargo 1.$RUST_NEEDED is still not found after the installation"
    fi
    [[ $purpose != bench ]] || install_oha
    [[ $purpose != mutants ]] || install_mutants
    [[ $purpose != audit ]] || install_deny
    [[ $purpose != test ]] || install_placement
    [[ $purpose != test ]] || fetch_kernel
}

case ${1:-} in
build | test | services | bench | mutants | audit) setup "$1" ;;
rust-path)
    rust_path || refuse "no cargo of version 1.$RUST_NEEDED or newer was found; run: make build"
    ;;
*) refuse "usage: scripts/setup.sh build|test|services|bench|mutants|audit|rust-path" ;;
esac
