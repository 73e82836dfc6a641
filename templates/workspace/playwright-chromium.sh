#!/bin/sh
# Installs Playwright (VERSION) for Node.js and Python, and links Debian's Chromium to where it looks for the browsers that it
# downloads elsewhere.
set -eu
PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 npm install --global --no-audit "playwright@$1"
pip install --quiet --no-cache-dir --break-system-packages "playwright==$1"
browsers=$(npm root --global)/playwright/node_modules/playwright-core/browsers.json
[ -f "$browsers" ] || browsers=$(npm root --global)/playwright-core/browsers.json
revision=$(node -p "require('$browsers').browsers.find((one) => one.name === 'chromium').revision")
root=/opt/playwright
for place in chromium-$revision/chrome-linux64/chrome chromium-$revision/chrome-linux/chrome \
    chromium_headless_shell-$revision/chrome-headless-shell-linux64/chrome-headless-shell \
    chromium_headless_shell-$revision/chrome-linux/headless_shell; do
    mkdir -p "$root/$(dirname "$place")"
    ln -sf /usr/bin/chromium "$root/$place"
    touch "$root/${place%%/*}/INSTALLATION_COMPLETE"
done
rm -rf /root/.npm
