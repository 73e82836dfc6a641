#!/bin/sh
# extension.sh ZIP DIRECTORY: unpacks an extension; its manifest may be in a directory of the archive.
set -eu
rm -rf "$2" "$2.all"
mkdir -p "$2.all"
unzip -q "$1" -d "$2.all"
rm -f "$1"
manifest=$(find "$2.all" -maxdepth 3 -name manifest.json | head -n 1)
if [ -z "$manifest" ]; then
    echo "there is no manifest.json in the extension" >&2
    exit 1
fi
mv "$(dirname "$manifest")" "$2"
