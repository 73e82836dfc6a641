#!/bin/sh
# Puts the desktop's own files in their places; run as root while the template is built.
set -eu
here=/opt/desktop
chmod 0755 "$here"/*.sh "$here"/bin/*

# For gVisor; elsewhere it asks the kernel the same as before.
gcc -shared -fPIC -O2 -Wall -Werror -o /usr/local/lib/close_range.so "$here/close_range.c"
echo /usr/local/lib/close_range.so >/etc/ld.so.preload

if [ "$(uname -m)" = x86_64 ]; then
    gcc -O2 -Wall -Werror -o "$here/has-gs" "$here/has_gs.c"
else
    ln -sf /bin/true "$here/has-gs"
fi

# Before the real ones on the search path: they take up the desktop that is there already.
for name in "$here"/bin/*; do ln -sf "$name" "/usr/local/bin/$(basename "$name")"; done
for name in google-chrome google-chrome-stable; do ln -sf "$here/bin/google-chrome" "/usr/bin/$name"; done
install -D -m 0644 "$here/chromium.sh" /etc/chromium.d/desktop
ln -sf "$here/bin/firefox-esr" /usr/local/bin/firefox

# The addresses that the SDKs use.
ln -sfn /usr/share/novnc /opt/noVNC
ln -sf vnc.html /usr/share/novnc/index.html
[ -x /usr/share/novnc/utils/novnc_proxy ] || ln -sf launch.sh /usr/share/novnc/utils/novnc_proxy

cp "$here"/applications/*.desktop /usr/share/applications/
sed -i 's|^Exec=[^ ]*firefox-esr|Exec=/usr/local/bin/firefox-esr|' /usr/share/applications/firefox-esr.desktop
update-desktop-database -q /usr/share/applications 2>/dev/null || true
install -D -m 0644 "$here/mimeapps.list" /etc/xdg/mimeapps.list
install -D -m 0644 "$here/firefox-policies.json" /usr/lib/firefox-esr/distribution/policies.json
install -D -m 0644 "$here/firefox-policies.json" /etc/firefox/policies/policies.json
install -D -m 0644 "$here/chromium-policies.json" /etc/chromium/policies/managed/desktop.json
install -D -m 0644 "$here/profile.sh" /etc/profile.d/desktop.sh
cp "$here"/xfce/*.xml /etc/xdg/xfce4/xfconf/xfce-perchannel-xml/
install -D -m 0644 "$here/wallpaper.svg" /usr/share/backgrounds/desktop.svg
mkdir -p /tmp/.X11-unix && chmod 1777 /tmp/.X11-unix

# Nothing that asks, locks, or waits for a session manager that is not there.
rm -f /etc/xdg/autostart/xfce4-power-manager.desktop /etc/xdg/autostart/light-locker.desktop \
    /etc/xdg/autostart/xscreensaver.desktop /etc/xdg/autostart/xiccd.desktop /etc/xdg/autostart/xdg-user-dirs.desktop \
    /etc/xdg/autostart/geoclue-demo-agent.desktop /etc/xdg/autostart/tracker-*.desktop
mkdir -p /tmp/.ICE-unix && chmod 1777 /tmp/.ICE-unix
runuser -u user -- sh -c 'mkdir -p ~/Desktop ~/Documents ~/Downloads ~/Pictures ~/.vnc'
dbus-uuidgen >/etc/machine-id  # GTK programs want one; it is the same in every sandbox
