#!/bin/sh
# Ends Chromium so that it writes its profile first; by force if it does not end.
set -eu
pid=$(cat /tmp/.browser.pid 2>/dev/null || echo 0)
[ "$pid" -gt 1 ] || exit 0
kill -TERM "$pid" 2>/dev/null || exit 0
for _ in $(seq 100); do
    kill -0 "$pid" 2>/dev/null || exit 0
    sleep 0.05
done
pkill -KILL -x chromium || true
