#!/bin/sh
# Whether the desktop is drawn and at rest, and the tools answer: what is saved then is what every sandbox begins with.
. /opt/desktop/profile.sh
curl -fsS -o /dev/null http://127.0.0.1:6060/health || exit 1
for name in xfce4-session xfwm4 xfdesktop xfce4-panel; do pgrep -x "$name" >/dev/null || exit 1; done
xdotool search --onlyvisible --class xfce4-panel >/dev/null 2>&1 || exit 1
former=$(xwd -root -silent 2>/dev/null | cksum)
sleep 1
[ "$(xwd -root -silent 2>/dev/null | cksum)" = "$former" ]
