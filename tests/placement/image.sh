#!/usr/bin/env bash
# Makes the OCI image of a program, lets another program unpack it, and runs it there as its user: the version, and trials on
# an https target by name, from /etc/hosts and from a server of names. Everything is in namespaces of its own. Needs root.
#
#   image.sh BINARY
set -euo pipefail

fail() {
    echo "image: $*" >&2
    exit 1
}

# Within the namespaces: nothing here can be seen, or stays, outside.
if [[ ${1:-} == inside ]]; then
    readonly WORK=$2 ROOT=$2/bundle/rootfs BINARY=$3 PLACE=$4
    ip link set lo up
    # What a runtime of containers brings.
    mkdir -p "$ROOT/proc"
    mount -t proc proc "$ROOT/proc"
    echo "127.0.0.1 in-hosts.example" >"$ROOT/etc/hosts"
    echo "nameserver 127.0.0.1" >"$ROOT/etc/resolv.conf"
    install -m 644 "$WORK/ca.pem" "$ROOT/tmp/ca.pem"
    python3 "$PLACE/names.py" in-dns.example 127.0.0.1 >"$WORK/names" &
    "$BINARY" serve --listen 127.0.0.1:8443 --cert "$WORK/target.pem" --key "$WORK/target.key" >"$WORK/served" 2>&1 &
    trap 'kill $(jobs -p)' EXIT
    for _ in {1..300}; do
        if [[ -s $WORK/names ]] && (: </dev/tcp/127.0.0.1/8443) 2>/dev/null; then break; fi
        sleep 0.1
    done
    run() { (cd / && env -i PATH=/ "$(command -v chroot)" --userspec=65532:65532 "$ROOT" /proofload "$@" </dev/null); }
    [[ $(run --version) == "proofload "* ]] || fail "it does not say its version"
    for name in in-hosts in-dns; do
        status=0
        run http "https://$name.example:8443/" -n 20 --users 2 --cacert /tmp/ca.pem --json - >"$WORK/json" 2>"$WORK/err" || status=$?
        # A busy machine may make the trial void. What was counted does not depend on that.
        if ((status == 3)) && [[ -n ${PROOFLOAD_TEST_NOTES:-} ]]; then
            echo "void accepted: image.sh: $name: the machine was busy" >>"$PROOFLOAD_TEST_NOTES"
        fi
        if ((status != 0 && status != 3)) || ! grep -q '"completed": 20,' "$WORK/json"; then
            cat "$WORK/err" "$WORK/json" >&2
            fail "no trial on $name.example: status $status"
        fi
    done
    # The bundle of authorities is read, and does not have ours.
    if run http https://in-hosts.example:8443/ -n 1 >"$WORK/json" 2>&1; then fail "it trusts any certificate"; fi
    grep -qi "issuer\|authorit" "$WORK/json" || { cat "$WORK/json" >&2; fail "it does not say that the authority is unknown"; }
    exit
fi

readonly BINARY=$(realpath "$1") PLACE=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
cd "$PLACE/../.."
((EUID == 0)) || fail "only root can run it"
work=$(mktemp -d)
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT
export SOURCE_DATE_EPOCH=1700000000
scripts/oci-image.sh "$BINARY" 1.2.3 "$work/image.tar" LICENSE
# A beginning of the program is packed sooner.
head -c 100000 "$BINARY" >"$work/proofload"
for n in 1 2; do scripts/oci-image.sh "$work/proofload" 1.2.3 "$work/small-$n.tar" LICENSE; done
cmp "$work/small-1.tar" "$work/small-2.tar" || fail "two images of the same files differ"

mkdir "$work/layout"
tar -x -f "$work/image.tar" -C "$work/layout"
umoci unpack --image "$work/layout:1.2.3" "$work/bundle" 2>"$work/err" || { cat "$work/err" >&2; fail "umoci cannot unpack it"; }
cmp "$BINARY" "$work/bundle/rootfs/proofload"
seen=$(cd "$work/bundle/rootfs" && stat --format='%a %u:%g %Y %n' tmp proofload etc/passwd)
wanted="1777 0:0 $SOURCE_DATE_EPOCH tmp
755 0:0 $SOURCE_DATE_EPOCH proofload
644 0:0 $SOURCE_DATE_EPOCH etc/passwd"
[[ $seen == "$wanted" ]] || fail "modes, owners or times: $seen"
python3 - "$work/bundle/config.json" <<'EOF'
import json, sys
process = json.load(open(sys.argv[1]))["process"]
seen = process["args"], process["user"]["uid"], process["user"]["gid"], process["cwd"]
assert seen == (["/proofload"], 65532, 65532, "/tmp"), seen
EOF

# An authority, and a certificate of it for both names.
cd "$work"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=authority of a test" -days 2 \
    -keyout ca.key -out ca.pem 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=target of a test" -keyout target.key -out target.csr 2>/dev/null
openssl x509 -req -in target.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out target.pem 2>/dev/null \
    -extfile <(echo "subjectAltName=DNS:in-hosts.example,DNS:in-dns.example")
unshare --mount --net --pid --fork -- "$PLACE/image.sh" inside "$work" "$BINARY" "$PLACE"
echo "image: ok"
