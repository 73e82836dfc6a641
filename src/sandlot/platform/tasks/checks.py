"""A task's checks: run in its sandbox as programs of their own, so that a restart of the platform finds them again."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import datetime

from sandlot.platform.agents.descriptions import AgentDescription
from sandlot.platform.agents.turns import Turn, interrupt_line, interrupt_seconds, turn_script
from sandlot.platform.core.ports import Clock
from sandlot.platform.core.tasks import CheckResult, Entry, EntryKind
from sandlot.platform.tasks.boxes import TIMED_OUT
from sandlot.platform.tasks.following import read_page, start_page
from sandlot.platform.tasks.timeline import Timeline
from sandlot.platform.tasks.turns import TurnPlace

KEPT = 32 << 10  # bytes of a check's output: its end tells most
LOST = "the check was lost with its machine"


class CheckRunner:
    """`shell` is the agent that runs any command."""

    def __init__(self, *, shell: AgentDescription, timeline: Timeline, clock: Clock) -> None:
        self._shell, self._timeline, self._clock = shell, timeline, clock

    async def run(self, place: TurnPlace, commands: Sequence[str], series: str) -> tuple[CheckResult, ...]:
        """All of them, one after the other. `series` names this time: a check of the same series is not run twice."""
        results = []
        for number, command in enumerate(commands, start=1):
            result = await self.one(place, command, series, number)
            data = {
                "command": command,
                "passed": int(result.exit_code == 0),
                "failed": int(result.exit_code != 0),
                "output": result.output,
                "exit_code": result.exit_code,
            }
            entry = Entry(kind=EntryKind.TEST, text=command, data=data, attempt=place.number)
            await self._timeline.add(place.task, entry)
            results.append(result)
        return tuple(results)

    async def one(self, place: TurnPlace, command: str, series: str, number: int) -> CheckResult:
        turn = Turn(
            task=f"{place.task}-{series}",
            attempt=place.number,
            number=number,
            prompt="",
            directory=place.directory,
            command=command,
            environment=place.environment,
        )
        began = time.monotonic()
        exit_code, output = await self._wait(place, turn, place.deadline)
        text = _shown(output)
        for value, name in place.hidden.items():
            text = text.replace(value, name)
        return CheckResult(
            command=command, exit_code=exit_code, output=text, seconds=round(time.monotonic() - began, 1)
        )

    async def _wait(self, place: TurnPlace, turn: Turn, deadline: datetime) -> tuple[int, bytes]:
        taken, kept, is_late = 0, bytearray(), False
        page = await start_page(place.box, turn, turn_script(self._shell, turn))
        while True:
            taken += len(page.content)
            kept += page.content
            del kept[: -KEPT - 4096 or None]
            if page.is_over:
                if is_late:
                    return TIMED_OUT, bytes(kept) + b"\nthe task's time limit is over\n"
                if page.exit_code is None:
                    return 1, bytes(kept) + f"\n{LOST}\n".encode()
                return page.exit_code, bytes(kept)
            if not is_late and self._clock() >= deadline:
                is_late = True
                await place.box.run(interrupt_line(self._shell, turn), timeout_s=interrupt_seconds(self._shell) + 10)
            page = await read_page(place.box, turn, taken)


def _shown(output: bytes) -> str:
    """Without the line that is for readers of agents."""
    text = output.decode(errors="replace")
    first, _, rest = text.partition("\n")
    try:
        if isinstance(json.loads(first), dict) and '"sandlot.turn"' in first:
            text = rest
    except ValueError:
        pass
    return text if len(text) <= KEPT else "…\n" + text[-KEPT:]
