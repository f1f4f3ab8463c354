#!/usr/bin/env bash
# Checks what puts the program onto other machines: the roles and playbooks of ansible/, the manifests of kubernetes/, and the
# OCI image. `scripts/setup.sh test` installs what it needs; it asks no network.
#
#   check-placement.sh [BINARY]    BINARY is the program for the image [default: PROOFLOAD_BIN]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly BINARY=${1:-${PROOFLOAD_BIN:?}} TOOLS=$PWD/target/placement/bin
readonly KUBERNETES=(1.27 1.37) # the oldest and the newest
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Ansible writes beside what it reads, and into the home folder.
cp -r ansible "$work/ansible"
export PATH="$TOOLS:$PATH" ANSIBLE_HOME=$work/home ANSIBLE_LOCAL_TEMP=$work/home/tmp XDG_CACHE_HOME=$work/cache
export ANSIBLE_NOCOLOR=1 NO_COLOR=1

ansible() (
    cd "$work/ansible"
    ansible-playbook --inventory inventory.example.yml --syntax-check agents.yml nats.yml drain.yml remove.yml
    ansible-lint --offline
)
manifests() {
    local version
    for version in "${KUBERNETES[@]}"; do
        kubernetes-validate --strict --quiet --kubernetes-version "$version" kubernetes/*.yaml || return
    done
    # The broker's settings are in one of them: nats-server reads them where the pod has them, but below $work.
    mkdir -p "$work"/etc/{nats,nats-tls,nats-authorization}
    python3 -c 'import sys, yaml
print(next(yaml.safe_load_all(sys.stdin))["data"]["nats.conf"].replace("/etc/", sys.argv[1] + "/etc/"))
' "$work" <kubernetes/nats.yaml >"$work/etc/nats/nats.conf"
    echo 'authorization { users = [ { user: a, password: b } ] }' >"$work/etc/nats-authorization/authorization.conf"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=broker -days 2 \
        -keyout "$work/etc/nats-tls/tls.key" -out "$work/etc/nats-tls/tls.crt" 2>"$work/openssl"
    nats-server -t -c "$work/etc/nats/nats.conf"
}
image() {
    if ((EUID == 0)); then
        tests/placement/image.sh "$BINARY"
    else
        [[ -z ${PROOFLOAD_TEST_NOTES:-} ]] || echo "skipped: the OCI image: only root can run it" >>"$PROOFLOAD_TEST_NOTES"
    fi
}

# Runs checks beside each other, and shows what the failed ones say.
names=(ansible manifests image) pids=() failed=()
for name in "${names[@]}"; do
    (set -e; "$name") >"$work/$name.log" 2>&1 &
    pids+=($!)
done
for at in "${!names[@]}"; do
    wait "${pids[at]}" && continue
    failed+=("${names[at]}")
    echo "${names[at]}:"
    cat "$work/${names[at]}.log"
done
if ((${#failed[@]})); then
    echo "placement: failed: ${failed[*]}"
    exit 1
fi
echo "placement: ok"
