#!/usr/bin/env bash
# Builds the virtual machines of playbooks.sh: a small Debian with systemd, sshd and Python on a disk, and what boots it. Debian's packages
# of chrony and nats-server lie in the cache of apt there, since the machine has no network to fetch them from. Two minutes; needs root.
#
#   build-guest.sh FOLDER     makes FOLDER: disk, kernel, initramfs, key and key.pub (of root's login)
set -euo pipefail
readonly FOLDER=$(realpath -m "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
readonly KERNEL=$PWD/target/vm/kernel
[[ ! -e $FOLDER/kernel ]] || exit 0
rm -rf "$FOLDER"
mkdir -p "$FOLDER"
work=$(mktemp -d "$FOLDER/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
release=$(ls "$KERNEL/lib/modules")

# Of the archives that this machine uses, Debian's own.
sources=""
for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
    if [[ -s $file ]]; then
        sources=$file
        break
    fi
done
[[ -n $sources ]] || { echo "build-guest: this machine has no list of Debian's archives" >&2; exit 2; }
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
tree=$work/tree
mmdebstrap --mode=root --variant=minbase --skip=cleanup/apt \
    --include=systemd-sysv,udev,kmod,openssh-server,python3,python3-apt,iproute2,procps \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook='chroot "$1" apt-get clean' \
    --customize-hook='chroot "$1" apt-get install -y -q --no-install-recommends --download-only chrony nats-server' \
    "$suite" "$tree" "$sources" >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 2; }

cp -r "$KERNEL/lib/modules" "$tree/usr/lib/"
chroot "$tree" depmod "$release"
ssh-keygen -q -t ed25519 -N "" -C "tests" -f "$FOLDER/key"
install -D -m 600 "$FOLDER/key.pub" "$tree/root/.ssh/authorized_keys"
chmod 700 "$tree/root/.ssh"
# The first network is this machine's, for ssh. The second joins the guests; the last byte of its address says which guest it is.
put() {
    mkdir -p "$(dirname "$tree/$1")"
    cat >"$tree/$1"
}
put etc/systemd/network/10-outside.network <<<"[Match]
MACAddress=52:54:00:00:00:01
[Network]
Address=10.0.2.15/24"
for guest in 1 2; do
    put "etc/systemd/network/20-guest$guest.network" <<<"[Match]
MACAddress=52:54:00:00:01:0$guest
[Network]
Address=192.168.77.$guest/24"
done
ln -sf /dev/null "$tree/etc/systemd/system/systemd-networkd-wait-online.service"
ln -sf /dev/null "$tree/etc/systemd/system/apt-daily.timer"
ln -sf /dev/null "$tree/etc/systemd/system/apt-daily-upgrade.timer"
chroot "$tree" systemctl enable --quiet systemd-networkd
rm -f "$tree/etc/machine-id"
echo "/dev/vda / ext4 defaults 0 0" | put etc/fstab

# The disk's and the network's drivers are modules.
initramfs=$work/initramfs
mkdir -p "$initramfs"/{bin,dev,proc,root,modules}
cp "$(command -v busybox)" "$initramfs/bin/busybox"
chroot "$tree" modprobe --set-version "$release" --show-depends --all virtio_pci virtio_blk | while read -r _ module; do
    cp "$tree$module" "$initramfs/modules/"
    echo "/modules/${module##*/}" >>"$initramfs/modules/order"
done
cat >"$initramfs/init" <<'EOF'
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs devtmpfs /dev
while read -r module; do /bin/busybox insmod "$module"; done </modules/order
/bin/busybox mount -t ext4 /dev/vda /root
exec /bin/busybox switch_root /root /sbin/init
EOF
chmod 755 "$initramfs/init"
(cd "$initramfs" && find . | busybox cpio -o -H newc 2>/dev/null) >"$FOLDER/initramfs"
truncate -s 2G "$FOLDER/disk"
mkfs.ext4 -q -F -d "$tree" -L guest "$FOLDER/disk"
# Last: it says that all is there.
cp "$KERNEL/boot/vmlinuz-$release" "$FOLDER/kernel"
