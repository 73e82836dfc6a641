#!/bin/sh
# Installs code-server from npm: VERSION. Its native modules are compiled with the headers of the installed Node.js.
set -eu
apt-get update
DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends libkrb5-dev
# npm's own way to node-gyp came from an archive that keeps no modes.
find /usr/local/lib/node_modules/npm -path "*node-gyp*" -type f \( -name node-gyp -o -name node-gyp.js \) -exec chmod 0755 {} +
npm_config_nodedir=/usr/local npm install --global --unsafe-perm --no-audit "code-server@$1"
rm -rf /root/.npm /root/.cache /var/lib/apt/lists/* /var/cache/apt/*.bin
