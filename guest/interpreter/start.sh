#!/bin/sh
# Runs the interpreter's server, and again when it ends: a sandbox without it would be of no use to its caller.
cd "$(dirname "$(readlink -f "$0")")/.." || exit 1
while :; do
    ./interpreter/venv/bin/python -m interpreter "$@"
    echo "the server ended with $?; it starts again" >&2
    sleep 0.5
done
