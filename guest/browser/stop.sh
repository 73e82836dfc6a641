#!/bin/sh
# Ends Chromium, by force if it does not end. With an argument it is left that many seconds to end by itself first.
set -eu
pid=$(cat /tmp/.browser.pid 2>/dev/null || echo 0)
[ "$pid" -gt 1 ] || exit 0
for _ in $(seq $((${1:-0} * 20))); do
    kill -0 "$pid" 2>/dev/null || exit 0
    sleep 0.05
done
kill -TERM "$pid" 2>/dev/null || exit 0
for _ in $(seq 100); do
    kill -0 "$pid" 2>/dev/null || exit 0
    sleep 0.05
done
pkill -KILL -x chromium || true
