# A study of one target whose host tracks connections. Before it stand ENTRIES, how many, and USERS.
set -e
# Entries of ended connections stay for two minutes, so the table is full after as many connections.
sysctl -q -w net.netfilter.nf_conntrack_max=$ENTRIES
cat >/tmp/rules <<END
add table inet t
add chain inet t c { type filter hook input priority 0; }
add rule inet t c ct state new accept
END
cat >/tmp/study.toml <<END
title = "conntrack"
[hosts]
client = {}
web = {}
[[links]]
between = ["client", "web"]
[[processes]]
on = "web"
command = ["nft", "-f", "/tmp/rules"]
ready = "exit"
may_end = true
[targets.web]
on = "web"
run = "serve"
[workload.http]
from = "client"
users = $USERS
keepalive = false
think_time = "20ms"
timeout = "2s"
duration = "4s"
[[goals]]
errors = 0.0
END
proofload run /tmp/study.toml --out /tmp/result -q || true
echo "== trials"
cat /tmp/result/trials.jsonl
