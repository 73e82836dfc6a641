#!/bin/sh
# Installs code-server from npm: VERSION. Its native modules are compiled with the headers of the installed Node.js.
set -eu
apt-get update
DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends libkrb5-dev
npm_config_nodedir=/usr/local npm install --global --unsafe-perm --no-audit "code-server@$1"
rm -rf /root/.npm /root/.cache /var/lib/apt/lists/* /var/cache/apt/*.bin
