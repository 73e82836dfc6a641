#!/bin/bash
# Starts the tools (6060) and VS Code (9000) in windows of a tmux session called `services`, and stays until it ends.
#   tmux attach -t services      look at them
set -eu
export TERM=${TERM:-xterm-256color} SHELL=/bin/bash
again() { # COMMAND: runs it, and again when it ends
    printf 'while :; do %s; echo "it ended with $?; it starts again"; sleep 1; done' "$1"
}
code="code-server --bind-addr 127.0.0.1:9000 --auth none --disable-telemetry --disable-update-check --disable-workspace-trust \
--disable-getting-started-override --disable-proxy --ignore-last-opened --app-name Sandlot $HOME/workspace"
tmux has-session -t services 2>/dev/null || {
    tmux new-session -d -s services -n tools "$(again 'sandlot-tools serve')"
    tmux new-window -d -t services -n code "$(again "$code")"
}
while tmux has-session -t services 2>/dev/null; do sleep 5; done
