#!/bin/sh
# Prints the token with which programs in this sandbox use its MCP tools; with --header, the header that carries it, as JSON.
# A token counts in one sandbox only, and templates, snapshots and forks are shared: so one is asked for where it is used,
# and kept together with the sandbox's id.
set -eu
umask 077
id=$(cat /run/e2b/.E2B_SANDBOX_ID 2>/dev/null || echo none)
kept=$HOME/.cache/sandlot-tools-token
if [ "$(sed -n 1p "$kept" 2>/dev/null)" != "$id" ]; then
    mkdir -p "$HOME/.cache"
    printf '%s\n%s\n' "$id" "$(sandlot-tools token)" >"$kept.part"
    mv "$kept.part" "$kept"
fi
token=$(sed -n 2p "$kept")
if [ "${1:-}" = --header ]; then
    printf '{"Authorization": "Bearer %s"}\n' "$token"
else
    printf '%s\n' "$token"
fi
