#!/bin/sh
# The template's start command: a desktop as the SDKs ask for it when they name no size, and the MCP tools beside it.
. /opt/desktop/profile.sh
export DISPLAY=:0
state=/tmp/.desktop
rm -rf "$state" /tmp/.X*-lock  # of a machine that this one only has the files of
mkdir -m 0700 "$state"
cd "$HOME" || exit 1

DESKTOP_WARM=1 Xvfb :0 -ac -screen 0 1024x768x24 -retro -dpi 96 -nolisten tcp -nolisten unix >"$state/xvfb.log" 2>&1 &
DESKTOP_WARM=1 startxfce4 >"$state/xfce.log" 2>&1 &
exec /opt/sandlot-tools/tools/start.sh
