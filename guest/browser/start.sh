#!/bin/sh
# Runs the sandbox's one Chromium in the foreground; arguments are further options for it. Its debugging port is on loopback alone.
set -eu
profile=${PROFILE:-/home/user/.browser/profile}
mkdir -p "$profile" /home/user/downloads /tmp/.uploads
rm -f "$profile"/Singleton*
echo $$ >/tmp/.browser.pid
exec chromium \
    --headless=new \
    --no-sandbox \
    --no-first-run \
    --no-default-browser-check \
    --password-store=basic \
    --remote-debugging-port=9222 \
    --user-data-dir="$profile" \
    --disable-gpu \
    --disable-background-networking \
    --disable-component-update \
    --disable-default-apps \
    --disable-domain-reliability \
    --disable-search-engine-choice-screen \
    --disable-sync \
    --metrics-recording-only \
    --mute-audio \
    --disable-features=DisableLoadExtensionCommandLineSwitch,OptimizationHints,MediaRouter,Translate \
    --window-size=1280,720 \
    "$@" \
    about:blank
