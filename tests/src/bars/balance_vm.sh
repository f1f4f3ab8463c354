# Runs the shipped study with the kernel's own balancer and ours. Before it stand STUDY, the file, and KEEPALIVE, the connection modes.
set -e
echo root:x:0:0::/:/bin/sh >/etc/passwd
echo root:x:0: >/etc/group
proofload run $STUDY --out /tmp/result -q --set balancer=lvs,l2dsr --set hosts.web.count=3 --set users=50 --set pace=0s --set keepalive=$KEEPALIVE \
    --set trial.repeats=1 >/tmp/report 2>&1 || cat /tmp/report
echo "== trials"
cat /tmp/result/trials.jsonl
