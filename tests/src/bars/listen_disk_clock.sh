# Runs in the machine, whose clock can be set. Before it stands JUMPS.
set -e
date -s "2026-03-01 12:00:00" >/dev/null
mkdir -p /tmp/store
proofload listen --listen 127.0.0.1:9880 --path '/tmp/store/${tag}.%Y-%m-%d-%H.log' --threads 1 2>/tmp/listen &
LISTEN=$!
for _ in $(seq 600); do
    ! wget -q -O /dev/null http://127.0.0.1:9880/health || break
    sleep 0.1
done
for level in accepted written synced; do
    proofload http http://127.0.0.1:9880/clock --events --receipts /tmp/$level --ack $level \
        -u 2 --think-time 20ms -d 600s --threads 1 -q >/tmp/http-$level 2>&1 &
    LOADS="$LOADS $!"
done
for jump in $(seq "$JUMPS"); do
    # Some events come between two jumps.
    for _ in $(seq 600); do
        [ "$(cat /tmp/store/*.log | wc -l)" -lt $((20 * jump)) ] || break
        sleep 0.1
    done
    case $((jump % 4)) in
    0) date -s "2026-03-01 12:00:00" ;;
    1) date -s "2026-03-02 00:00:01" ;;
    2) date -s "2025-12-31 23:59:59" ;;
    3) date -s "2027-07-01 00:00:00" ;;
    esac >/dev/null
done
sleep 0.5
for load in $LOADS; do
    kill -INT "$load" || { cat /tmp/listen /tmp/http-*; exit 1; }
    wait "$load" || true
done
kill -TERM "$LISTEN"
wait "$LISTEN" || { cat /tmp/listen /tmp/http-*; exit 1; }
proofload audit --receipts /tmp/accepted --receipts /tmp/written --receipts /tmp/synced --level accepted \
    --json /tmp/audit.json /tmp/store/*.log >/tmp/audit 2>&1 || cat /tmp/audit
echo "== audit"
cat /tmp/audit.json
