# Brings the program onto this machine and becomes its agent. `bootstrap.rs` writes this text into a shell's standard
# input, with a call of `start` or `remove` as its last line: by then the shell has read all of it, and what follows on
# the input is for `head` and the agent. The lines for `bootstrap.rs` begin with a mark, because start-up files of a
# login print whatever they like; `bootstrap.rs` makes messages of their words.

set +eufvxC
unset CDPATH IFS
umask 077
# Errors are reported in marked lines; others, of a place that was passed over, would look like the agent's last words.
exec 3>&2 2>/dev/null
# The system's programs first: with `.` in the login's path, others could plant programs in /var/tmp.
path=$PATH
PATH=/usr/bin:/bin:/usr/sbin:/sbin${PATH:+:$PATH}

say() { printf '\n%s %s\n' "$mark" "$(printf %s "$*" | tr '\n' ' ')"; }
refuse() {
    say refused "$@"
    exit 1
}

# start MARK SHA256 SIZE SYSTEM USER PLACE: executes the program with this checksum, after it has received SIZE bytes if
# no place has it. USER and PLACE may be empty.
start() {
    mark=$1 sha256=$2 size=$3 user=$5 given=$6 uid=$(id -u)
    system=$(uname -sm)
    [ "$system" = "$4" ] || refuse system "$system"
    command -v sha256sum >/dev/null || refuse sha256sum
    [ "$user" != "$(id -un)" ] || user=
    if [ -n "$user" ]; then
        as=$(sudo -n -u "$user" -- id -u </dev/null) || refuse sudo "$(sudo -n -u "$user" -- id -u </dev/null 2>&1)"
        [ "$as" = 0 ] || [ "$as" = "$uid" ] || refuse user
    fi
    # All places are searched before anything is sent: the first may have been full when another got the copy.
    make=:
    each run_present
    make='mkdir -m 700'
    each run_received
    refuse places
}

# remove MARK USER PLACE: undoes what killed runs of USER left, and deletes the copies in all places. USER may be empty.
remove() {
    mark=$1 user=$2 given=$3 uid=$(id -u) make=:
    [ "$user" != "$(id -un)" ] || user=
    each remove_versions
    say done
    exit
}

# Calls a function in each place, those on disks first.
each() {
    if [ -n "$given" ]; then
        at "$given" "$1"
        return
    fi
    case ${HOME-} in /*)
        # `.cache` may be the user's own link, but only to a folder of the user.
        $make "$HOME/.cache"
        if [ -O "$HOME/.cache/" ]; then
            at "$HOME/.cache/proofload" "$1"
        else
            [ "$make" = : ] || say unfit foreign "$HOME/.cache"
        fi
        ;;
    esac
    at "/var/tmp/proofload-$uid" "$1"
    at "/run/user/$uid/proofload" "$1"
    at "/dev/shm/proofload-$uid" "$1"
}

# Calls the function $2 in the place $1.
at() {
    place=$1 why=absent words=
    cd -P "${place%/*}/" && enter "${place##*/}" && "$2"
    [ "$make" = : ] || say unfit "$why" "$place${words:+ ($words)}"
}

# Goes into the folder $1 of the working folder; fails unless it is this login's alone. Another user may have planted
# it, or a link or a file, and may exchange it at any time. Thus it is judged once it is the working folder, which nobody
# can exchange, and what is in it has relative names only. `pwd -P` would not do: bash looks the path up again.
enter() {
    why=absent above=$(readlink /proc/self/cwd)
    words=$($make "./$1" 2>&1)
    cd -P "./$1" || return 1
    why=foreign words=
    [ "$(readlink /proc/self/cwd)" = "${above%/}/$1" ] && [ -O . ] || return 1
    # With an access control list, these are the rights that it can grant at most. S comes from the folder above.
    case $(ls -ld .) in drwx--[-S]---*) ;; *) return 1 ;; esac
}

run_present() { enter "$sha256" && [ -O proofload ] && holds proofload && run; }

run_received() {
    enter "$sha256" || return 1
    new=new-$mark
    receive && run
    # Nothing stays where it is of no use.
    rm -f "$new"
    [ "$why" != fails ] || rm -f proofload
    cd -P .. && rmdir "$sha256" && cd -P .. && rmdir "./${place##*/}"
}

# Receives the program if files can be executed here.
receive() {
    why=noexec
    words=$({ printf '#!/bin/sh\n' >"$new" && chmod 700 "$new" && "./$new" </dev/null; } 2>&1) || return 1
    say need
    why=full
    # The second `cat` takes what the first cannot write, so that the whole program has always been read.
    words=$({ head -c "$size" | { cat >"$new" || { cat >/dev/null; false; }; }; } 2>&1) || return 1
    holds "$new" || { rm -f "$new"; refuse damaged; }
    # `mv` would move into a folder.
    [ -f proofload ] && [ ! -L proofload ] || rm -rf proofload
    mv -f "$new" proofload
}

# Whether $1 is the program: a regular file with its checksum.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && sum=$(sha256sum <"$1") && [ "${sum%% *}" = "$sha256" ]; }

# Becomes the agent if the program runs here.
run() {
    why=fails
    set -- ./proofload agent
    [ -z "$user" ] || set -- "$(command -v sudo)" -n -u "$user" -- "$@"
    words=$("$@" --check </dev/null 2>&1) || return 1
    (remove_old)
    PATH=${path:-/usr/bin:/bin}:/usr/sbin:/sbin
    say have
    # The address at this end of the connection is the third word.
    reached=${SSH_CONNECTION-} reached=${reached% *} reached=${reached##* }
    exec "$@" ${reached:+--reached "$reached"} --stdio 2>&3 3>&-
}

# Keeps the two versions that were used last, and those that run, which start workers from their files. Removes what is
# left of copies that were cut off.
remove_old() {
    touch . && cd -P .. || return
    find . -name 'new-*' -mtime +0 -exec rm -f {} \;
    others=0
    for version in $(ls -t); do
        is_version "$version" && [ "$version" != "$sha256" ] && others=$((others + 1)) && [ $others -gt 1 ] &&
            ! ls -l /proc/[0-9]*/exe | grep -qF "/$version/proofload" && rm -rf "$version"
    done
}

remove_versions() {
    for version in *; do
        is_version "$version" || continue
        tidy "$version" || continue
        rm -rf "$version" && say removed "$place/$version"
    done
    cd -P .. && rmdir "./${place##*/}"
}

# Lets the copy $1 undo what killed runs left. If it cannot, the copy is still needed.
tidy() {
    [ -O "$1/proofload" ] && [ -f "$1/proofload" ] && [ ! -L "$1/proofload" ] || return 0
    set -- "./$1/proofload" clean
    [ -z "$user" ] || set -- "$(command -v sudo)" -n -u "$user" -- "$@"
    words=$("$@" </dev/null 2>&1) || {
        say unclean "$words"
        return 1
    }
    printf '%s\n' "$words" | while read -r word what; do [ "$word" != removed ] || say removed "$what"; done
}

is_version() { case $1 in *[!0-9a-f]*) false ;; *) [ ${#1} = 64 ] ;; esac }
