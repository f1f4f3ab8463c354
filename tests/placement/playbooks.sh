#!/usr/bin/env bash
# Plays the playbooks of ansible/ into two virtual machines of Debian with systemd: a broker and two agents. The second play changes
# nothing. Both make a load over NATS, on a target in the first. Then they are drained, and everything is removed; the second removal
# changes nothing either. Half an hour if nothing else runs; needs root, and what `scripts/setup.sh test` installs.
#
#   playbooks.sh BINARY
set -euo pipefail
BINARY=$(realpath "$1")
readonly BINARY
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
readonly GUEST=$PWD/target/placement-guest TOOLS=$PWD/target/placement/bin PLACE=$PWD/tests/placement
export PATH="$TOOLS:$PATH"

say() { echo "playbooks, after $SECONDS s: $*"; }
fail() {
    say "$*" >&2
    exit 1
}

tests/placement/build-guest.sh "$GUEST"
work=$(mktemp -d)
machines=()
finish() {
    kill "${machines[@]}" 2>/dev/null || true
    wait
    rm -rf "$work"
}
trap finish EXIT
export ANSIBLE_HOME=$work/home ANSIBLE_LOCAL_TEMP=$work/home/tmp ANSIBLE_NOCOLOR=1 ANSIBLE_PIPELINING=1
export ANSIBLE_SSH_ARGS="-o ControlMaster=auto -o ControlPersist=600 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"

# Ports of 127.0.0.1 that nobody has: of ssh to each guest, of the broker, and of what joins the guests.
mapfile -t ports < <(python3 -c 'import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
for one in held: print(one.getsockname()[1])')
readonly SSH=("${ports[0]}" "${ports[1]}") BROKER=${ports[2]} JOIN=${ports[3]}

# A guest's disk is written to a file that goes with it. Guest 1 has the broker.
start() {
    local guest=$1 join=$2 forward=$3
    qemu-system-x86_64 -accel tcg -machine pc -cpu qemu64,+rdrand -smp 1 -m 768 -nodefaults -no-user-config -no-reboot -display none \
        -kernel "$GUEST/kernel" -initrd "$GUEST/initramfs" \
        -append "console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on net.ifnames=0 systemd.hostname=guest$guest" \
        -serial "file:$work/console$guest" -drive "file=$GUEST/disk,format=raw,if=virtio,snapshot=on" \
        -netdev "user,id=outside,restrict=on,hostfwd=tcp:127.0.0.1:${SSH[guest - 1]}-10.0.2.15:22$forward" \
        -device virtio-net-pci,netdev=outside,mac=52:54:00:00:00:01,romfile= \
        -netdev "socket,id=guests,$join=127.0.0.1:$JOIN" \
        -device "virtio-net-pci,netdev=guests,mac=52:54:00:00:01:0$guest,romfile=" >"$work/qemu$guest" 2>&1 &
    machines+=($!)
}
in_guest() {
    # shellcheck disable=SC2086 # several words
    ssh $ANSIBLE_SSH_ARGS -o ControlPath="$work/ssh%p" -o ConnectTimeout=10 -i "$GUEST/key" -p "${SSH[$1 - 1]}" root@127.0.0.1 "${@:2}"
}
start 1 listen ",hostfwd=tcp:127.0.0.1:$BROKER-10.0.2.15:4222"
until (: <"/dev/tcp/127.0.0.1/${SSH[0]}") 2>/dev/null; do
    kill -0 "${machines[0]}" || fail "QEMU does not start: $(cat "$work/qemu1")"
    sleep 0.2
done
start 2 connect ""
for guest in 1 2; do
    until in_guest "$guest" true 2>"$work/ssh"; do
        kill -0 "${machines[guest - 1]}" || fail "guest $guest ended: $(tail -n 5 "$work/console$guest")"
        ((SECONDS < 600)) || fail "guest $guest lets nobody in: $(cat "$work/ssh"; tail -n 5 "$work/console$guest")"
        sleep 1
    done
    say "guest $guest is up"
done

# What a user has: certificates, a list of who may connect, a package, and an inventory beside them.
mkdir "$work/own" "$work/package"
cd "$work/own"
ec=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
openssl req -x509 "${ec[@]}" -subj "/CN=authority of a test" -days 2 -keyout ca.key -out ca.pem 2>"$work/openssl"
openssl req "${ec[@]}" -subj "/CN=broker" -keyout broker.key -out broker.csr 2>"$work/openssl"
openssl x509 -req -in broker.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out broker.pem \
    -extfile <(echo "subjectAltName=IP:192.168.77.1,IP:127.0.0.1") 2>"$work/openssl"
"$TOOLS/python3" "$PLACE/credentials.py" . agent controller
"$BINARY" fleet key controller.key >controller.pub
install -D -m 755 "$BINARY" "$work/package/usr/bin/proofload"
mkdir "$work/package/DEBIAN"
printf '%s\n' "Package: proofload" "Version: 1" "Architecture: amd64" "Maintainer: nobody <nobody@localhost>" "Description: for a test" \
    >"$work/package/DEBIAN/control"
dpkg-deb --root-owner-group -Znone --build "$work/package" proofload.deb >"$work/dpkg"
cat >inventory.yml <<EOF
all:
  hosts:
    localhost: { ansible_connection: local, ansible_remote_tmp: $work/home/remote }
  vars:
    ansible_host: 127.0.0.1
    ansible_user: root
    ansible_ssh_private_key_file: $GUEST/key
    ansible_python_interpreter: /usr/bin/python3
proofload_agents:
  hosts:
    guest1: { ansible_port: ${SSH[0]}, proofload_package: "{{ inventory_dir }}/proofload.deb" }
    guest2: { ansible_port: ${SSH[1]}, proofload_binary: "$BINARY" }
  vars:
    proofload_nats_url: nats://192.168.77.1:4222/main
    proofload_nats_creds: "{{ inventory_dir }}/agent.creds"
    proofload_nats_ca: "{{ inventory_dir }}/ca.pem"
    proofload_controller_keys: ["{{ lookup('ansible.builtin.file', inventory_dir ~ '/controller.pub') }}"]
    proofload_allow: [192.168.77.0/24]
    proofload_fleet_key: "{{ inventory_dir }}/controller.key"
    proofload_fleet_creds: "{{ inventory_dir }}/controller.creds"
    proofload_profile: max-rps
    proofload_settings: [net.core.somaxconn=4096]
    proofload_chrony_servers: [192.0.2.123]
proofload_nats:
  hosts:
    guest1:
  vars:
    proofload_nats_certificate: "{{ inventory_dir }}/broker.pem"
    proofload_nats_certificate_key: "{{ inventory_dir }}/broker.key"
    proofload_nats_authorization: "{{ inventory_dir }}/authorization.conf"
EOF
cd - >/dev/null

play() {
    ansible-playbook --inventory "$work/own/inventory.yml" "ansible/$1" "${@:2}" >"$work/play" 2>&1 || {
        cat "$work/play"
        fail "$1 failed"
    }
    say "$1 was played: $(sed -n 's/ *: ok=\([0-9]*\) *changed=\([0-9]*\).*/ changed \2 of \1/p' "$work/play" | paste -sd ,)"
}
unchanged() {
    play "$@"
    if grep -q 'changed=[1-9]' "$work/play"; then
        grep -B 20 '^changed:' "$work/play"
        fail "the second play of $1 changed something"
    fi
}
# What a guest says must be this.
expect() {
    local guest=$1 wanted=$2 seen
    seen=$(in_guest "$guest" "${@:3}") || true
    [[ $seen == "$wanted" ]] || fail "guest $guest, ${*:3}: '$seen', not '$wanted'"
}

play nats.yml
play agents.yml
unchanged nats.yml
unchanged agents.yml
expect 1 active systemctl is-active proofload-nats
expect 1 "masked" systemctl is-enabled nats-server
for guest in 1 2; do
    expect "$guest" $'active\nactive\nactive' systemctl is-active proofload-agent proofload-tune chrony
    expect "$guest" "proofload 600 /var/lib/proofload-agent/agent.key
proofload 400 /etc/proofload-agent/nats.creds
root 644 /etc/proofload-agent/nats-ca.pem" stat --format "'%U %a %n'" /var/lib/proofload-agent/agent.key \
        /etc/proofload-agent/nats.creds /etc/proofload-agent/nats-ca.pem
    expect "$guest" "10240	65535" cat /proc/sys/net/ipv4/ip_local_port_range
done
[[ $(grep -cE '^guest[12] ed25519:' "$work/own/agent-keys") == 2 ]] || fail "agent-keys: $(cat "$work/own/agent-keys")"

# A trial over NATS. The clocks of emulated machines are read late: its times do not count, its requests do.
readonly URL=nats://127.0.0.1:$BROKER/main
pool=(--nats-creds "$work/own/controller.creds" --nats-ca "$work/own/ca.pem" --fleet-key "$work/own/controller.key"
    --agent-keys "$work/own/agent-keys")
until [[ $("$BINARY" fleet list "$URL" "${pool[@]}" | grep -c " idle ") == 2 ]]; do
    ((SECONDS < 7200)) || fail "both agents are not there: $("$BINARY" fleet list "$URL" "${pool[@]}" 2>&1)"
    sleep 1
done
"$BINARY" fleet list "$URL" "${pool[@]}"
in_guest 1 systemd-run --quiet --unit=target proofload serve --listen 192.168.77.1:8080 --json /run/served.json
status=0
"$BINARY" http http://192.168.77.1:8080/ -n 200 --users 4 --on "$URL" "${pool[@]}" --json "$work/json" >"$work/trial" 2>&1 || status=$?
cat "$work/trial"
((status == 0 || status == 3)) || fail "no trial over NATS: status $status"
grep -q '"completed": 200,' "$work/json" || fail "not all of 200 requests were answered"
in_guest 1 systemctl stop target
in_guest 1 grep -q "'\"requests\": 200,'" /run/served.json || fail "the target says: $(in_guest 1 cat /run/served.json)"

export PATH="$work/package/usr/bin:$PATH"
# From here, the broker has another address.
play drain.yml --extra-vars "proofload_nats_url=$URL"
for guest in 1 2; do expect "$guest" inactive systemctl is-active proofload-agent; done
unchanged drain.yml --extra-vars "proofload_nats_url=$URL"
play remove.yml
unchanged remove.yml
for guest in 1 2; do
    expect "$guest" "" "getent passwd proofload proofload-nats; ls -d /etc/proofload* /var/lib/proofload* /etc/systemd/system/proofload* 2>/dev/null"
    expect "$guest" "32768	60999" cat /proc/sys/net/ipv4/ip_local_port_range
done
[[ ! -s $work/own/agent-keys ]] || fail "agent-keys after the removal: $(cat "$work/own/agent-keys")"
say ok
