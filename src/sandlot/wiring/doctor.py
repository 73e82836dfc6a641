"""The doctor's findings for the console: the same command as on the command line, in a process of its own."""

from __future__ import annotations

import json
import sys

from sandlot.engine.core.errors import EngineError
from sandlot.engine.node import processes
from sandlot.platform.console.parts import DoctorFinding
from sandlot.platform.core.errors import Unavailable

LIMIT_S = 120.0
MAX_WORDS = 500


async def findings() -> list[DoctorFinding]:
    try:
        argv = (sys.executable, "-P", "-m", "sandlot", "doctor", "--json")
        done = await processes.run(*argv, timeout_s=LIMIT_S, check=False, in_host_mounts=True)
        rows = json.loads(done.stdout)
    except EngineError as error:
        raise Unavailable(f"the doctor did not answer: {error}") from error
    except ValueError as error:
        said = done.stderr.decode("utf-8", "replace")[-MAX_WORDS:]
        raise Unavailable(f"the doctor did not answer (status {done.status}): {said}") from error
    return [
        DoctorFinding(name=row["name"], state=row["state"], detail=row["detail"], fix=row["fix"] or None)
        for row in rows
    ]
