"""Starts the daemon: `python -m envd`, or `run` where a quicker start counts."""

from __future__ import annotations

import gc
import sys

from envd import logs, slim


def run() -> None:
    gc.disable()  # nothing that start-up makes becomes garbage
    slim.install(lambda text: logs.log("error", text))
    from envd.daemon import main

    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    run()
