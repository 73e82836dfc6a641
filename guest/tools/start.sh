#!/bin/sh
# Runs the tools' server, and again when it ends: an agent without its tools could do nothing.
while :; do
    sandlot-tools serve "$@"
    echo "the tools ended with $?; they start again" >&2
    sleep 0.5
done
