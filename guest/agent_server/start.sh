#!/bin/sh
# Runs the agent server, and again when it ends.
cd /opt/sandlot-agent-server || exit 1
while :; do
    node main.mjs
    echo "the agent server ended with $?; it starts again" >&2
    sleep 0.5
done
