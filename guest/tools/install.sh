#!/bin/sh
# Installs the tools that lie beside this script, in an environment of their own that no package of the user's can break.
# Run as root while a template is built: install.sh [browser]
set -eu
here=$(dirname "$(readlink -f "$0")")
root=$(dirname "$here")
[ -x "$root/venv/bin/python" ] || python3 -m venv "$root/venv"
"$root/venv/bin/python" -m pip install -q --no-cache-dir --disable-pip-version-check --require-hashes -r "$here/server.lock"
if [ "${1:-}" = browser ]; then
    "$root/venv/bin/python" -m pip install -q --no-cache-dir --disable-pip-version-check --require-hashes -r "$here/browser.lock"
fi
packages=$("$root/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$root" >"$packages/sandlot-tools.pth"
"$root/venv/bin/python" -m compileall -q "$here"
chmod 0755 "$here/start.sh"
printf '#!/bin/sh\nexec %s/venv/bin/python -I -m tools "$@"\n' "$root" >/usr/local/bin/sandlot-tools
chmod 0755 /usr/local/bin/sandlot-tools
# The server runs as the sandbox's user; what it keeps is that user's.
install -d -o user -g user -m 0700 /var/lib/sandlot-tools
