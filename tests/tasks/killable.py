"""A platform in a process of its own that ends itself with SIGKILL at each step's boundary, once for each. For test_durability.

    python -m tests.tasks.killable PLACE PORT ENGINE_URL KEY KILLS

KILLS is a file: the boundaries at which it was ended already, one in a line. A boundary that is in there lets it pass.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.platform.world import ADMIN, by_url

from sandlot.platform.store import Database
from sandlot.server.http import build_server
from sandlot.wiring.platform import Setup, platform


async def main(place: Path, port: int, engine: str, key: str, kills: Path) -> None:
    async def hook(when: str, name: str) -> None:
        boundary = f"{when} {name}"
        if boundary in kills.read_text().splitlines():
            return
        with kills.open("a") as file:
            file.write(f"{boundary}\n")
            file.flush()
            os.fsync(file.fileno())
        os.kill(os.getpid(), signal.SIGKILL)

    setup = Setup(
        configuration=by_url(engine, key),
        database=Database.sqlite(place / "platform.db"),
        version="test",
        data_dir=place,
        admin_secret=lambda: ADMIN,
        keep_alive_s=1.0,
        step_hook=hook,
    )
    async with platform(setup) as made:
        server = build_server(made, host="127.0.0.1", port=port, before_shutdown=made.close)
        loops = asyncio.ensure_future(made.run())
        await server.serve()
        loops.cancel()
        await asyncio.gather(loops, return_exceptions=True)


if __name__ == "__main__":
    place, port, engine, key, kills = sys.argv[1:]
    asyncio.run(main(Path(place), int(port), engine, key, Path(kills)))
