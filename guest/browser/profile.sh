#!/bin/sh
# profile.sh pack FILE: ends Chromium and packs its profile without caches; profile.sh unpack FILE: replaces the profile.
set -eu
profile=/home/user/.browser/profile
"$(dirname "$0")/stop.sh"
case $1 in
pack)
    tar -C "$profile" -cf "$2" --exclude='*Cache*' --exclude='Singleton*' --exclude='Crash*' \
        --exclude='BrowserMetrics*' --exclude='component_crx_cache' --exclude='Safe Browsing*' .
    ;;
unpack)
    rm -rf "$profile"
    mkdir -p "$profile"
    tar -C "$profile" -xf "$2" --no-same-owner
    rm -f "$2"
    ;;
esac
