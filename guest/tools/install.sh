#!/bin/sh
# Installs the tools that lie beside this script, in an environment of their own that no package of the user's can break.
# Run as root while a template is built; `libraries` and `server` are steps of their own, so that a change of the tools
# does not install their libraries again.
#   install.sh libraries DIRECTORY LOCK...   what the lock files in the directory say
#   install.sh server                        the command `sandlot-tools`, and where the server keeps things
set -eu
here=$(dirname "$(readlink -f "$0")")
root=/opt/sandlot-tools
python=$root/venv/bin/python
step=${1:-}
shift || true

with_uv() { # joined by hand: a shell does not end at the first failure inside a condition
    python3 -m venv "$passing" &&
        "$passing/bin/python" -m pip install -q --no-cache-dir --disable-pip-version-check --require-hashes \
            -r installer.lock || return
    [ -x "$python" ] || "$passing/bin/uv" venv -q --python "$(command -v python3)" "$root/venv" || return
    for lock in "$@"; do
        "$passing/bin/uv" pip install -q --no-cache --compile-bytecode --python "$python" --require-hashes -r "$lock" ||
            return
    done
}

with_pip() {
    python3 -m venv --clear "$root/venv"
    for lock in "$@"; do
        "$python" -m pip install -q --no-cache-dir --disable-pip-version-check --require-hashes -r "$lock"
    done
}

case $step in
libraries)
    cd "$1"
    shift
    passing=$(mktemp -d)
    if ! with_uv "$@"; then
        echo "uv could not install the libraries; pip does" >&2
        with_pip "$@"
    fi
    rm -rf "$passing"
    ;;
server)
    [ "$here" = "$root/tools" ] || { echo "the tools belong in $root/tools, not in $here" >&2; exit 1; }
    echo "$root" >"$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/sandlot-tools.pth"
    "$python" -m compileall -q "$here"
    chmod 0755 "$here/start.sh"
    printf '#!/bin/sh\nexec %s -I -m tools "$@"\n' "$python" >/usr/local/bin/sandlot-tools
    chmod 0755 /usr/local/bin/sandlot-tools
    # The server runs as the sandbox's user; what it keeps is that user's.
    install -d -o user -g user -m 0700 /var/lib/sandlot-tools
    ;;
*)
    echo "usage: install.sh libraries DIRECTORY LOCK... | install.sh server" >&2
    exit 2
    ;;
esac
