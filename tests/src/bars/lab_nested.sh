# Brings a lab up in a host of a lab, and so on: nest.sh DEPTH.
# PROOFLOAD is the binary; beside this file lie lab1.toml, lab2.toml and so on.
[ "$1" = 0 ] && { echo "innermost is up"; exec sleep 100; }
"$PROOFLOAD" lab up --detach "$(dirname "$0")/lab$1.toml" || exit 1
exec "$PROOFLOAD" lab shell "lab$1/a" -- sh "$0" $(($1 - 1))
