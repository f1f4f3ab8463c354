#!/bin/busybox sh
# First process of the machine: makes a usual system of what the archive holds, runs the script, says
# how it ended, and switches off.
export PATH=/usr/bin:/busybox HOME=/root TMPDIR=/tmp
/bin/busybox --install -s /busybox
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
[ -e /dev/net/tun ] || { mkdir -p /dev/net && mknod /dev/net/tun c 10 200; }
ifconfig lo 127.0.0.1 up
stty -F /dev/ttyS1 raw -echo
while read -r module; do
    insmod "$module" || echo "insmod $module failed"
done </vm/modules/order
cd /root
/usr/bin/sh /vm/script </dev/null >/dev/ttyS1 2>&1
echo "vm-exit-status $?" >/dev/ttyS1
poweroff -f
