# Runs in the machine. Before it stand OPTIONS (of the mount), LEVEL and PHASE.
set -e
ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
mkdir -p /disk
mount -t ext4 -o "$OPTIONS" /dev/vda /disk
mkdir -p /disk/events
proofload listen --listen 0.0.0.0:9880 --path '/disk/events/${tag}.log' --ack "$LEVEL" --threads 1 2>/tmp/listen &
LISTEN=$!
if [ "$PHASE" = cut ]; then
    # Until the power goes.
    wait "$LISTEN" || true
    cat /tmp/listen
    exit 1
fi
# The listener has mended its files when it answers.
for _ in $(seq 600); do
    ! wget -q -O /dev/null http://10.0.2.15:9880/health || break
    sleep 0.1
done
kill -TERM "$LISTEN"
wait "$LISTEN"
cat /tmp/listen
umount /disk
