"""Starts the daemon: `python -m envd`."""

from __future__ import annotations

import sys

from envd import logs, slim

if __name__ == "__main__":
    slim.install(lambda text: logs.log("error", text))
    from envd.daemon import main

    sys.exit(main(sys.argv[1:]))
