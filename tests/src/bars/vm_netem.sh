# Measures the same link made in several ways. Before it stand LINKS, these ways; PINGS, the number of round trips; and
# FLOW_S, the seconds that one TCP flow is measured after its first OMITTED_S.
set -e

RATE=20mbit
DELAY=50ms
# What the bottleneck's queue holds: one product of rate and round trip.
QUEUE_BYTES=250000

hosts() {
    for host in a b; do
        ip netns add $host
        ip -n $host link set lo up
    done
}

# Two hosts joined by a cable.
cable() {
    hosts
    ip link add x netns a address 02:00:00:00:00:01 type veth peer name x netns b address 02:00:00:00:00:02
    ip -n a address add 10.0.0.1/24 dev x
    ip -n b address add 10.0.0.2/24 dev x
    ip -n a link set x up
    ip -n b link set x up
}

# netem alone: its limit is in packets, of whatever size, those in the air included.
link_netem() {
    cable
    for host in a b; do
        ip netns exec $host tc qdisc add dev x root netem delay $DELAY rate $RATE limit 332
    done
}

# netem delays, then tbf limits the rate, with a queue in bytes.
link_netem_tbf() {
    cable
    for host in a b; do
        ip netns exec $host tc qdisc add dev x root handle 1: netem delay $DELAY limit 10000
        ip netns exec $host tc qdisc add dev x parent 1:1 tbf rate $RATE burst 3028 limit $QUEUE_BYTES
    done
}

# Ours, from the moment it says that it is ready. It counts the bytes that the kernel's would.
proofload_link() {
    proofload link a b --device x --addresses 10.0.0.1/24,10.0.0.2/24 --driver "$1" \
        --rate $RATE --layer frame --delay $DELAY --queue $QUEUE_BYTES </dev/null >/tmp/link 2>&1 &
    LINK=$!
    for _ in $(seq 100); do
        ! grep -q "link ready" /tmp/link || return 0
        sleep 0.1
    done
    cat /tmp/link
    return 1
}

link_emulator() {
    hosts
    proofload_link emulator
}

link_netem_driver() {
    cable
    proofload_link netem
}

measure() {
    ip netns exec b iperf3 --server --daemon --pidfile /tmp/iperf3.pid
    sleep 1
    # The first packet pays for finding the neighbour.
    ip netns exec a ping -q -c 1 -W 5 10.0.0.2 >/dev/null
    echo "== ping $1"
    ip netns exec a ping -q -c "$PINGS" -i 0.2 10.0.0.2
    echo "== iperf3 $1"
    ip netns exec a iperf3 --client 10.0.0.2 --omit "$OMITTED_S" --time "$FLOW_S" --json
    kill "$(tr -d '\0' </tmp/iperf3.pid)"
}

for link in $LINKS; do
    LINK=""
    link_$link
    measure $link
    echo "== end $link"
    if [ -n "$LINK" ]; then
        kill -INT "$LINK"
        wait "$LINK" || true
        cat /tmp/link
    fi
    for host in a b; do ip netns delete $host; done
done

# The same from a lab file, and gone with the lab.
cat >/tmp/lab.toml <<END
[hosts]
a = {}
b = {}
[[links]]
between = ["a", "b"]
driver = "netem"
rate = "$RATE"
layer = "frame"
delay = "$DELAY"
queue = "$QUEUE_BYTES"
END
proofload lab up --detach /tmp/lab.toml
echo "== qdiscs lab_netem"
proofload lab shell a -- tc qdisc show dev eth0
proofload lab shell a -- ping -q -c 1 -W 5 10.1.0.2 >/dev/null
echo "== ping lab_netem"
proofload lab shell a -- ping -q -c "$PINGS" -i 0.2 10.1.0.2
echo "== end lab_netem"
proofload lab down

# Somebody's own discipline is not replaced, and what was made at the other end before is taken back.
cable
ip netns exec b tc qdisc add dev x root tbf rate 1gbit burst 10000 limit 100000
echo "== refusal netem_driver"
! proofload link a b --device x --driver netem --delay 1ms --duration 1s
ip netns exec a tc qdisc show dev x
ip netns exec b tc qdisc show dev x
echo "== end refusal"
