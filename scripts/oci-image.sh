#!/usr/bin/env bash
# Writes an OCI image of the program, from scratch and without a daemon, as an archive of an image layout. The same files and
# the same time give the same bytes.
#
#   oci-image.sh BINARY VERSION ARCHIVE [LICENCE...]   licences are files that go with the program. The environment gives
#                                                      SOURCE_DATE_EPOCH, the time of everything in it.
set -euo pipefail
readonly BINARY=$1 VERSION=$2 ARCHIVE=$3
readonly AUTHORITIES=/etc/ssl/certs/ca-certificates.crt USER_ID=65532
: "${SOURCE_DATE_EPOCH:?}"
export LC_ALL=C TZ=UTC

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
root=$work/root layout=$work/layout
mkdir "$root" "$layout"
put() { install -D -m "$1" "$2" "$root/$3"; }
write() {
    mkdir -p "$(dirname "$root/$1")"
    cat >"$root/$1"
}

put 755 "$BINARY" proofload
put 644 "$AUTHORITIES" etc/ssl/certs/ca-certificates.crt
for file in "${@:4}"; do put 644 "$file" "usr/share/doc/proofload/${file##*/}"; done
write etc/passwd <<<"root:x:0:0:root:/:/sbin/nologin
proofload:x:$USER_ID:$USER_ID:proofload:/tmp:/sbin/nologin"
write etc/group <<<"root:x:0:
proofload:x:$USER_ID:"
mkdir -m 1777 "$root/tmp"

# Names are sorted, owners are root, times are the commit's.
pack() {
    tar --create --format=ustar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --directory "$1" -- "${@:2}"
}
digest() { sha256sum "$1" | cut -d ' ' -f 1; }
# Stores a file under its digest, which it prints.
store() {
    local name
    name=$(digest "$1")
    mkdir -p "$layout/blobs/sha256"
    mv "$1" "$layout/blobs/sha256/$name"
    echo "$name"
}
size() { stat --format=%s "$layout/blobs/sha256/$1"; }
# The descriptor of what is stored: its type, its digest.
descriptor() { printf '"mediaType":"%s","digest":"sha256:%s","size":%s' "$1" "$2" "$(size "$2")"; }

# The machine that a program in ELF is for stands in its 19th and 20th byte.
case $(od -An -tx1 -j18 -N2 "$BINARY" | tr -d ' ') in
3e00) architecture=amd64 ;;
b700) architecture=arm64 ;;
*)
    echo "oci-image: $BINARY is no program for x86-64 or AArch64" >&2
    exit 2
    ;;
esac
mapfile -t names < <(ls "$root")
pack "$root" "${names[@]}" >"$work/layer"
unpacked=$(digest "$work/layer")
gzip -9n "$work/layer"
layer=$(store "$work/layer.gz")
created=$(date --utc --date="@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
labels='"org.opencontainers.image.title":"proofload","org.opencontainers.image.version":"'$VERSION'","org.opencontainers.image.licenses":"Apache-2.0"'
# Results are written into the folder that a command runs in: one that this user may write to.
printf '%s' '{"created":"'"$created"'","architecture":"'$architecture'","os":"linux","config":{"User":"'"$USER_ID:$USER_ID"'",' \
    '"Entrypoint":["/proofload"],"Env":["PATH=/"],"WorkingDir":"/tmp","Labels":{'"$labels"'}},' \
    '"rootfs":{"type":"layers","diff_ids":["sha256:'"$unpacked"'"]},' \
    '"history":[{"created":"'"$created"'","created_by":"proofload make release"}]}' >"$work/config"
config=$(store "$work/config")
printf '%s' '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",' \
    '"config":{'"$(descriptor application/vnd.oci.image.config.v1+json "$config")"'},' \
    '"layers":[{'"$(descriptor application/vnd.oci.image.layer.v1.tar+gzip "$layer")"'}],' \
    '"annotations":{'"$labels"'}}' >"$work/manifest"
manifest=$(store "$work/manifest")
printf '%s' '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{' \
    "$(descriptor application/vnd.oci.image.manifest.v1+json "$manifest")"',' \
    '"platform":{"architecture":"'$architecture'","os":"linux"},' \
    '"annotations":{"org.opencontainers.image.ref.name":"'"$VERSION"'"}}]}' >"$layout/index.json"
printf '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"
pack "$layout" oci-layout index.json blobs >"$ARCHIVE"
