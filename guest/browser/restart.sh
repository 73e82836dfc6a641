#!/bin/sh
# Ends Chromium and starts it again with the given options. Says when it can be spoken to; fails if it cannot.
set -eu
here=$(dirname "$0")
"$here/stop.sh"
setsid "$here/start.sh" "$@" >/tmp/.browser.log 2>&1 </dev/null &
for _ in $(seq 300); do
    if curl -fsS -o /dev/null http://127.0.0.1:9222/json/version 2>/dev/null; then
        exit 0
    fi
    sleep 0.05
done
tail -c 2000 /tmp/.browser.log >&2
exit 1
