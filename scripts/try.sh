#!/usr/bin/env bash
# A first look: a closed and an open trial against our own target and against a real nginx, with the
# files they leave. Everything runs on 127.0.0.1, and what is started here is stopped here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

proofload=${PROOFLOAD_BIN:?run this by make try, which builds the binary}
results="results/try-$(date +%Y%m%d-%H%M%S)"
scratch=$(mktemp -d)
started=()

finish() {
    local status=$?
    trap - EXIT INT TERM
    local pid
    for pid in "${started[@]}"; do
        kill "$pid" 2>/dev/null || true
    done
    for pid in "${started[@]}"; do
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$scratch"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Waits until a line of a file matches, and prints it; fails when its writer has ended or 10 s have passed.
await_line() {
    local file=$1 pattern=$2 pid=$3
    for _ in $(seq 200); do
        if grep -m 1 "$pattern" "$file" 2>/dev/null; then return; fi
        kill -0 "$pid" 2>/dev/null || return 1
        sleep 0.05
    done
    return 1
}

start_serve() {
    "$proofload" serve --listen 127.0.0.1:0 --delay exp:2ms --json "$results/serve.json" \
        >"$scratch/serve.out" 2>&1 &
    started+=($!)
    local line
    if ! line=$(await_line "$scratch/serve.out" '^listening on ' $!); then
        cat "$scratch/serve.out" >&2
        echo "try: proofload serve did not start" >&2
        exit 1
    fi
    serve_url="http://${line#listening on }/"
}

answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# nginx cannot be told to take any free port, so some are tried.
start_nginx() {
    local nginx user="" port
    nginx=$(PATH="$PATH:/usr/sbin" command -v nginx)
    if ((EUID == 0)); then user="user root;"; fi
    for port in $(seq 18080 18099); do
        if answers "$port"; then continue; fi
        cat >"$scratch/nginx.conf" <<EOF
$user
daemon off;
worker_processes 1;
pid nginx.pid;
error_log error.log warn;
events { worker_connections 512; }
http {
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path client_body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    server {
        listen 127.0.0.1:$port backlog=4096;
        location / { default_type text/plain; return 200 'Hello, World!'; }
    }
}
EOF
        "$nginx" -p "$scratch" -c "$scratch/nginx.conf" >"$scratch/nginx.out" 2>&1 &
        local pid=$!
        for _ in $(seq 100); do
            if ! kill -0 "$pid" 2>/dev/null; then break; fi
            if [[ -s $scratch/nginx.pid ]] && answers "$port"; then
                started+=("$pid")
                nginx_url="http://127.0.0.1:$port/"
                return
            fi
            sleep 0.05
        done
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    cat "$scratch/nginx.out" "$scratch/error.log" >&2 2>/dev/null || true
    echo "try: nginx did not start on any of 127.0.0.1:18080 to :18099" >&2
    exit 1
}

# Runs one trial, in the background so that an interrupt is seen at once.
trial() {
    local name=$1 title=$2 status=0
    shift 2
    set -- "$@" --json "$results/$name.json" --hlog "$results/$name.hlog"
    echo
    echo "== $title"
    echo "\$ proofload http $*"
    "$proofload" http "$@" &
    local pid=$!
    started+=("$pid")
    wait "$pid" || status=$?
    case $status in
    0) ;;
    1) echo "(exit status 1: some requests failed or were never sent)" ;;
    3) echo "(exit status 3: the trial is void; the reasons are above)" ;;
    *)
        echo "try: the trial ended with status $status" >&2
        exit "$status"
        ;;
    esac
}

mkdir -p "$results"
start_serve
start_nginx
trial serve-closed "our own target, exponential delay of 2 ms: 32 users, each waits for its answer" \
    "$serve_url" --users 32 --duration 5s
trial serve-open "the same target: 2,000 requests per second whatever it does" \
    "$serve_url" --rate 2k --arrivals poisson --connections 64 --duration 5s
trial nginx-closed "nginx: 16 users, as fast as it answers" "$nginx_url" --users 16 --duration 5s
trial nginx-open "nginx: 5,000 requests per second on 16 connections" \
    "$nginx_url" --rate 5k --connections 16 --duration 5s
echo
echo "The whole of each trial is in $results/: NAME.json (counts, percentiles, validity) and"
echo "NAME.hlog (the histograms, for HdrHistogram's tools). serve.json is what our target says it did."
