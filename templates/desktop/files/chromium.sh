# Flags of every Chromium here. The sandbox around it is the boundary: Chromium's own needs rights that are not here.
export CHROMIUM_FLAGS="$CHROMIUM_FLAGS --no-sandbox --test-type --no-first-run --no-default-browser-check --password-store=basic \
--disable-gpu --disable-breakpad --disable-background-networking --disable-sync --disable-dev-shm-usage"
