# Loads whose answers are known, and bottlenecks that are built, in a machine whose time is simulated.
set -e
# A service with these arguments, on a port of its own.
serve() {
    PORT=$1
    shift
    proofload serve --listen 127.0.0.1:$PORT --json /tmp/serve-$PORT "$@" >/tmp/said-$PORT 2>&1 &
    SERVE=$!
    for _ in $(seq 600); do
        ! grep -q "^listening on" /tmp/said-$PORT || return 0
        sleep 0.05
    done
    cat /tmp/said-$PORT
    return 1
}
# A trial of it, and then what the service says of it.
trial() {
    NAME=$1
    shift
    status=0
    proofload http http://127.0.0.1:$PORT/ -q --threads 1 --json /tmp/trial "$@" >/tmp/said 2>&1 || status=$?
    kill -INT $SERVE
    wait $SERVE
    echo "== $NAME status"
    echo $status
    echo "== $NAME trial"
    cat /tmp/trial /dev/null
    echo "== $NAME serve"
    cat /tmp/serve-$PORT
}
ip link set lo up

serve 8001 --delay 300ms
trial closed -u 20 --ramp-up 300ms -d 6s
serve 8002 --stall 2s,200ms
trial stalls -R 200 -c 64 -d 4s
serve 8003 --delay exp:20ms --seed 1
trial exponential -R 200 --arrivals poisson -c 256 -d 8s --seed 1
serve 8004
trial paced -R 500 -c 16 -d 2s

# What the bottleneck of a lab with one target is. $2 are keys of the target, $3 those of the workload.
study() {
    cat >/tmp/$1.toml <<END
title = "verdict"
[hosts]
client = {}
web = {}
[[links]]
between = ["client", "web"]
[targets.web]
on = "web"
run = "serve"
$2
[workload.http]
from = "client"
$3
[[goals]]
errors = 0.0
END
    proofload run /tmp/$1.toml --out /tmp/$1 -q >/tmp/said 2>&1 || true
    echo "== $1 trials"
    cat /tmp/$1/trials.jsonl || cat /tmp/said
}
study slow_handler 'args = ["--capacity", "2", "--service-time", "40ms"]' 'users = 12
duration = "3s"'
study accept_queue 'args = ["--backlog", "4", "--stall", "1s,150ms"]' 'users = 60
think_time = "exp:200ms"
keepalive = false
duration = "4s"'
study descriptors 'descriptors = 24' 'users = 40
think_time = "100ms"
duration = "3s"'
study offered_load 'args = ["--capacity", "2", "--service-time", "20ms"]' 'rate = 20
duration = "4s"'
