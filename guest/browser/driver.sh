#!/bin/sh
# driver.sh PORT: has a WebDriver server listen on loopback; it drives the Chromium that runs.
set -eu
up() { curl -fsS -o /dev/null "http://127.0.0.1:$1/status" 2>/dev/null; }
up "$1" && exit 0
setsid chromedriver --port="$1" --silent >/tmp/.driver.log 2>&1 </dev/null &
for _ in $(seq 200); do
    up "$1" && exit 0
    sleep 0.05
done
tail -c 2000 /tmp/.driver.log >&2
exit 1
