# A machine of the fleet. Before it stand ADDRESS, its address on the segment; PPM, by how much its clock is fast; and SERVE, the port of a
# server that writes down when each request came, or nothing.
set -e
echo root:x:0:0::/root:/bin/sh >/etc/passwd
echo sshd:x:101:65534::/run/sshd:/bin/false >>/etc/passwd
echo root:x:0: >/etc/group
echo nogroup:x:65534: >>/etc/group
mkdir -m 755 /run/sshd
# As it was unpacked, all may write in it, which sshd refuses.
chmod 755 /
chmod 700 /root
cp /vm/host_key /run/host_key
chmod 600 /run/host_key
for device in eth0 eth1; do echo 1 >/proc/sys/net/ipv6/conf/$device/disable_ipv6; done
# ssh from outside comes by the first, the load by the second.
ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
ifconfig eth1 "$ADDRESS" netmask 255.255.255.0 up
adjtimex -q -f $((PPM * 65536))
# sshd executes itself again, so its path must be absolute.
/usr/bin/sshd -f /vm/sshd_config -E /run/sshd.log
# It goes into the background before it listens.
until grep -q ":0016 .* 0A " /proc/net/tcp; do sleep 0.1; done
if [ -n "$SERVE" ]; then
    proofload serve --listen "$ADDRESS:$SERVE" --record /run/requests >/run/serve.log 2>&1 &
    echo $! >/run/serve.pid
fi
echo guest-ready
while :; do sleep 3600; done
