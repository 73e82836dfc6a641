# For login shells: where Playwright finds Chromium, where programs find it, and the token for the tools of this sandbox.
export PLAYWRIGHT_BROWSERS_PATH=/opt/playwright NODE_PATH=/usr/local/lib/node_modules
SANDLOT_TOOLS_TOKEN=$(/usr/local/lib/workspace/tools-token.sh 2>/dev/null || true)
export SANDLOT_TOOLS_TOKEN
