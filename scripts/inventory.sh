#!/usr/bin/env bash
# Lists what tests could leave on this machine or change on it, a line each: mounts, network interfaces, settings of the
# kernel, control groups, pinned BPF objects, users, files, and the processes that have MARK in their environment.
#
#   inventory.sh MARK
set -uo pipefail
export LC_ALL=C

# In folders that all programs use, only what has our name.
named() { find "$@" -maxdepth 1 \( -name '*proofload*' -o -name 'sshd*' \) 2>/dev/null; }
all() { find "$@" 2>/dev/null; }

sed 's/^[0-9]* [0-9]* /mount /' /proc/self/mountinfo
for link in /sys/class/net/*; do echo "interface ${link##*/} $(cat "$link/ifindex" 2>/dev/null)"; done
{ ip address && ip route && ip -6 route && tc qdisc; } 2>/dev/null | grep -v valid_lft | sed 's/^/network /'
# Without what counts by itself.
find /proc/sys -type f -perm -u=r 2>/dev/null |
    grep -vE '/(random/|ns_last_pid|pty/nr|inode-nr|inode-state|file-nr|dentry-state|aio-nr|quota/|perf_event_max_sample_rate|nf_conntrack_count|binfmt_misc/)' |
    xargs -r grep -sH '' | sed 's/^/setting /'
find /sys/fs/cgroup -type d -name '*proofload*' 2>/dev/null | sed 's/^/group /'
all /sys/fs/bpf -mindepth 1 | sed 's/^/pin /'
sed 's/^/user /' /etc/passwd /etc/group
{
    named /tmp /var/tmp /dev/shm /run /var/lib /var/log
    all /etc /var/log/nginx /run/netns "${HOME:-/root}/.ssh" "${HOME:-/root}/.local/state" -maxdepth 2
} | sed 's/^/file /'
# The children of this shell, and of the script that asks, are no leftovers: those have another parent. What ends while it is
# looked at is none.
parent_of() { cut -d ' ' -f 4 "/proc/$1/stat" 2>/dev/null; }
askers=" $$ $PPID $(parent_of "$PPID") "
for environment in $(grep -lsxzF "$1" /proc/[0-9]*/environ); do
    process=${environment#/proc/} process=${process%/environ}
    parent=$(parent_of "$process") || continue
    [[ $askers == *" $process "* || $askers == *" $parent "* ]] ||
        echo "process $process $(tr '\0' ' ' 2>/dev/null <"/proc/$process/cmdline")"
done
