#!/usr/bin/env bash
# Builds what is given to users: the static binary, man pages, completions, a package for Debian, an OCI image, and their checksums.
# The same commit gives the same bytes, in whichever folder it is built.
#
#   release.sh HOST     HOST is what rustc calls this machine, such as x86_64-unknown-linux-gnu
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly HOST=$1 OUT=target/release-files

# The version of the package ends with a revision, so that its changelog is another than the program's.
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)-1
# Times within the package are those of the commit.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH CARGO_INCREMENTAL=0 LC_ALL=C TZ=UTC
cargo_home=${CARGO_HOME:-$HOME/.cargo}
sysroot=$(rustc --print sysroot)
# Names of source files stand in the messages of panics; those of this machine would differ from folder to folder.
export RUSTFLAGS="$RUSTFLAGS --remap-path-prefix=$PWD=/proofload --remap-path-prefix=$cargo_home=/cargo --remap-path-prefix=$sysroot=/rust"
export CFLAGS="-ffile-prefix-map=$PWD=/proofload -ffile-prefix-map=$cargo_home=/cargo"
cargo build --release --locked --target "$HOST" --target-dir target/reproducible -p proofload --bin proofload

rm -rf "$OUT"
mkdir -p "$OUT/man" "$OUT/completions"
binary=target/reproducible/$HOST/release/proofload
install -m 755 "$binary" "$OUT/proofload"
"$binary" generate "$OUT"

# The licences of the libraries within the binary, which want to go with it.
libraries() {
    local name version rest folder
    cargo tree --offline --locked -p proofload --edges normal --target "$HOST" --prefix none --no-dedupe --format '{p} {l}' |
        grep -v ' (/' | LC_ALL=C sort -u | while read -r name version rest; do
        echo "## $name ${version#v}: ${rest#(proc-macro) }"
        folder=$(echo "$cargo_home"/registry/src/*/"$name-${version#v}")
        find "$folder" -maxdepth 2 \( -iname 'LICEN[CS]E*' -o -iname 'COPYING*' -o -iname 'NOTICE*' \) -type f -print0 |
            sort -z | xargs -0r cat
    done
}
libraries >"$OUT/THIRD-PARTY.txt"

case $HOST in x86_64-*) arch=amd64 ;; aarch64-*) arch=arm64 ;; *) arch=$(dpkg --print-architecture) ;; esac
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
umask 022
chmod 755 "$root"
put() { install -D -m "$1" "$2" "$root/$3"; }
put 755 "$binary" usr/bin/proofload
for page in "$OUT"/man/*.1; do
    put 644 "$page" "usr/share/man/man1/$(basename "$page")"
    gzip -9n "$root/usr/share/man/man1/$(basename "$page")"
done
put 644 "$OUT/completions/proofload.bash" usr/share/bash-completion/completions/proofload
put 644 "$OUT/completions/_proofload" usr/share/zsh/vendor-completions/_proofload
put 644 packaging/proofload-listen.service lib/systemd/system/proofload-listen.service
put 644 packaging/copyright usr/share/doc/proofload/copyright
put 644 "$OUT/THIRD-PARTY.txt" usr/share/doc/proofload/THIRD-PARTY.txt
gzip -9n "$root/usr/share/doc/proofload/THIRD-PARTY.txt"
put 644 CHANGELOG.md usr/share/doc/proofload/changelog
put 644 packaging/changelog usr/share/doc/proofload/changelog.Debian
sed -i -e "s/@VERSION@/$version/" -e "s/@DATE@/$(date -R --date="@$SOURCE_DATE_EPOCH")/" \
    "$root/usr/share/doc/proofload/changelog.Debian"
gzip -9n "$root"/usr/share/doc/proofload/changelog*
for study in studies/*.toml; do put 644 "$study" "usr/share/doc/proofload/examples/$(basename "$study")"; done
put 644 packaging/lintian-overrides usr/share/lintian/overrides/proofload
mkdir "$root/DEBIAN"
sed -e "s/@VERSION@/$version/" -e "s/@ARCH@/$arch/" -e "s/@SIZE@/$(du -sk --apparent-size "$root" | cut -f1)/" \
    packaging/control > "$root/DEBIAN/control"
(cd "$root" && find usr lib -type f -print0 | sort -z | xargs -0 md5sum) > "$root/DEBIAN/md5sums"
# An installation has no fixed times of its own.
find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group -Zxz --build "$root" "$OUT/proofload_${version}_$arch.deb" >/dev/null
scripts/oci-image.sh "$binary" "${version%-*}" "$OUT/proofload_${version}_$arch.oci.tar" packaging/copyright "$OUT/THIRD-PARTY.txt"
(cd "$OUT" && find . -type f ! -name SHA256SUMS -printf '%P\n' | sort | xargs sha256sum > SHA256SUMS)
echo "made $OUT:"
cat "$OUT/SHA256SUMS"
