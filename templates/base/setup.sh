#!/bin/sh
# Runs once inside the new root filesystem, as root, after the packages are installed.
set -eu

groupadd --gid 1000 user
useradd --uid 1000 --gid 1000 --create-home --shell /bin/bash user
usermod --password '*' user
chsh --shell /bin/bash root

printf 'user ALL=(ALL:ALL) NOPASSWD: ALL\n' >/etc/sudoers.d/user
chmod 0440 /etc/sudoers.d/user

printf 'LANG=C.UTF-8\n' >/etc/default/locale

# Root and the user get the same search path, whatever way a shell is started.
cat >/etc/profile.d/path.sh <<'PROFILE'
PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
[ "${EUID:-$(id -u)}" -eq 0 ] || PATH="$HOME/.local/bin:$PATH"
export PATH
PROFILE

# Every command of the SDKs runs in a login shell. bash knows who it runs as; asking `id` is a process more each time, which
# under gVisor takes twice as long as all the rest of a short command.
sed -i 's/"$(id -u)"/"${EUID:-$(id -u)}"/' /etc/profile

# A sandbox is thrown away: `pip install` may write to the system's Python, as people expect of a container.
rm -f /usr/lib/python3*/EXTERNALLY-MANAGED
ln -sf python3 /usr/bin/python

# Manual pages are left out, but packages such as Java's link to them and fail to install without their directory.
mkdir -p /usr/share/man/man1

ln -sf /proc/self/mounts /etc/mtab
printf 'user_allow_other\n' >>/etc/fuse.conf
printf 'update-notifier=false\nfund=false\n' >/usr/local/etc/npmrc 2>/dev/null || true

printf '127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n' >/etc/hosts
