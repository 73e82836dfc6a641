"""An agent's turns in one attempt: started once, followed by offset, ended at their limits, and taken up again by any process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sandlot.platform.agents.descriptions import AgentDescription, PointedAgent
from sandlot.platform.agents.streams import StreamReader, TurnEnd, stream_reader
from sandlot.platform.agents.turns import (
    Turn,
    TurnScript,
    interrupt_line,
    interrupt_seconds,
    turn_script,
)
from sandlot.platform.core.errors import PlatformError, SandboxGone
from sandlot.platform.core.tasks import Attempt, Entry, EntryKind, Task, TokenUsage
from sandlot.platform.models.prices import LIST_PRICES, Prices
from sandlot.platform.tasks.boxes import TaskBox
from sandlot.platform.tasks.following import Lines, read_page, start_page
from sandlot.platform.tasks.state import TaskState

log = logging.getLogger(__name__)
WATCH_S = 0.5  # how soon a wish to interrupt is seen
TELL_S = 2.0  # how often a card is told what the agent does
MAX_BYTES = 512 << 20  # of one turn's output
MAX_TROUBLE = 20  # pages in a row that could not be read
MAX_ACTION = 160
ACTIONS = frozenset({EntryKind.COMMAND, EntryKind.EDIT, EntryKind.TOOL, EntryKind.TEST})


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPlace:
    """Where an attempt's turns happen. `hidden` are values that no timeline shows, with what stands for them."""

    task: str
    number: int
    agent: AgentDescription
    box: TaskBox
    directory: str
    deadline: datetime
    environment: dict[str, str]
    hidden: dict[str, str]
    found: dict[str, str] = field(default_factory=dict)  # variables by which its agent finds the board
    pointed: PointedAgent | None = None  # at a model of ours
    prices: Prices = LIST_PRICES


def environment_of(place: TurnPlace) -> dict[str, str]:
    return {**place.environment, **place.found, **(place.pointed.environment if place.pointed is not None else {})}


class AgentTurns:
    def __init__(self, state: TaskState, place: TurnPlace) -> None:
        self._state, self._place = state, place
        self._told_at = 0.0
        self._limit: str | None = None  # the limit that ended a turn
        self._was_interrupted = False

    async def begin(self, prompt: Callable[[Task, Attempt], tuple[str, dict[str, Any]]], kind: str | None) -> None:
        """Note that a turn starts, with what it is told: from then on it is followed, by whoever works on the task.

        `prompt` gets the newest record and says what to tell the agent, and what else changes. `kind`: told by us, not by a person.
        """
        number = self._place.number

        def change(now: Task) -> dict[str, Any]:
            attempt = attempt_of(now, number)
            text, more = prompt(now, attempt)
            begun = replace(
                attempt,
                turn=attempt.turn + 1,
                turn_ended=False,
                turn_started_at=self._state.clock(),
                turn_usage=TokenUsage(),
                sent=text,
                problem=None,
                question=None,
                **more.pop("attempt", {}),
            )
            return {"attempts": tuple(begun if one.number == number else one for one in now.attempts), **more}

        task = await self._state.update(self._place.task, change)
        if kind is not None:
            told = {"by": "sandlot", "kind": kind}
            entry = Entry(kind=EntryKind.PROMPT, text=attempt_of(task, number).sent, data=told, attempt=number)
            await self._state.timeline.add(task.id, entry)

    async def finish(self) -> str | None:
        """Follow the turn that was begun to its end, and store what it came to. Returns the limit that ended it, if one did."""
        task = await self._state.get(self._place.task)
        attempt = attempt_of(task, self._place.number)
        turn = self._turn(task, attempt)
        self._limit, self._was_interrupted = None, False
        watching = asyncio.ensure_future(self._watch(turn))
        try:
            end = await self._follow(task, attempt, turn, turn_script(self._place.agent, turn))
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        await self._ended(attempt, turn, end)
        return self._limit

    async def interrupt(self) -> None:
        """End the turn that runs, if one does, and note that it was ended."""
        task = await self._state.get(self._place.task)
        attempt = attempt_of(task, self._place.number)
        if attempt.turn_ended:
            return
        turn = self._turn(task, attempt)
        await self._place.box.run(
            interrupt_line(self._place.agent, turn), timeout_s=interrupt_seconds(self._place.agent) + 10
        )
        self._was_interrupted = True
        end = await self._follow(task, attempt, turn)
        await self._ended(attempt, turn, end)

    def _turn(self, task: Task, attempt: Attempt) -> Turn:
        return Turn(
            task=task.id,
            attempt=attempt.number,
            number=attempt.turn,
            prompt=attempt.sent,
            directory=self._place.directory,
            resume=attempt.agent_session,
            model=self._model(attempt.model or task.spec.model),
            priced_as=attempt.model or task.spec.model,
            command=task.spec.command,
            environment=environment_of(self._place),
            files=self._place.pointed.files if self._place.pointed is not None else {},
            spent=attempt.usage,
        )

    def _model(self, chosen: str | None) -> str | None:
        """Agents that name a model with its provider have it in the file that points them."""
        described = self._place.agent.model
        has_form = described is not None and described.form is not None
        return None if has_form and self._place.pointed is not None else chosen

    # -- following --------------------------------------------------------------------------------------------------

    async def _follow(self, task: Task, attempt: Attempt, turn: Turn, script: TurnScript | None = None) -> TurnEnd:
        """Read from the beginning, so that the reader knows everything; only what is new is stored.

        With a script, the turn is started first; one that was started is not started again: its script sees to that.
        """
        how = self._place.agent.task
        assert how is not None
        reader, lines, trouble, actions = stream_reader(how.output, self._place.prices), Lines(), 0, 0
        stream = f"{turn.attempt}/{turn.number}"
        stored = await self._state.timeline.offset(task.id, stream)
        while True:
            try:
                if script is not None:
                    page, script = await start_page(self._place.box, turn, script), None
                else:
                    page = await read_page(self._place.box, turn, lines.taken)
            except SandboxGone:
                raise
            except PlatformError as error:
                trouble += 1
                if trouble > MAX_TROUBLE:
                    raise
                log.info("task %s: %s", task.id, error)
                await asyncio.sleep(min(0.2 * 2**trouble, 10.0))
                continue
            trouble, entries, place = 0, list[Entry](), stored
            found = [*lines.feed(page.content), *(lines.last() if page.is_over else ())]
            for text, place_after in found:
                made = reader.feed(self._hidden(text))
                actions += sum(1 for entry in made if entry.kind in ACTIONS)
                if place_after > stored:
                    entries += [replace(entry, attempt=turn.attempt) for entry in made]
                    place = max(place, place_after)
            if place > stored:
                await self._state.timeline.add(task.id, *entries, offsets={stream: place})
                stored = place
            await self._tell(attempt, entries, reader)
            if page.is_over:
                return reader.end(page.exit_code, self._hidden(page.errors.decode(errors="replace")))
            await self._limits(task, attempt, turn, reader, actions, lines.taken)

    async def _ended(self, attempt: Attempt, turn: Turn, end: TurnEnd) -> None:
        stream = f"{turn.attempt}/{turn.number}/end"
        timeline, task = self._state.timeline, self._place.task
        if not await timeline.offset(task, stream):
            entries = [replace(entry, attempt=turn.attempt) for entry in end.entries]
            await timeline.add(task, *entries, offsets={stream: 1})
        begun = attempt.turn_started_at or self._state.clock()
        problem = end.problem
        if self._limit is not None or self._was_interrupted:
            problem = self._limit or "it was interrupted"
        await self._state.update_attempt(
            task,
            turn.attempt,
            turn_ended=True,
            turn_usage=TokenUsage(),
            usage=attempt.usage.plus(end.usage),
            agent_session=end.agent_session or attempt.agent_session,
            result=end.result or attempt.result,
            problem=problem,
            question=end.question if problem is None else None,
            seconds=attempt.seconds + max(0.0, (self._state.clock() - begun).total_seconds()),
        )

    async def _limits(
        self, task: Task, attempt: Attempt, turn: Turn, reader: StreamReader, actions: int, size: int
    ) -> None:
        """End a turn that has used up what it may use."""
        if self._limit is not None:
            return
        limits = (await self._state.get(task.id)).spec.limits
        cost = attempt.usage.plus(reader.usage).cost_usd or 0.0
        if self._state.clock() >= self._place.deadline:
            self._limit = f"its time limit of {limits.seconds} s is over; raise limits.seconds and retry it"
        elif limits.cost_usd is not None and cost >= limits.cost_usd:
            self._limit = f"it has cost ${cost:.2f} of ${limits.cost_usd:.2f}; raise limits.cost_usd and retry it"
        elif limits.turns is not None and actions > limits.turns:
            self._limit = f"its agent has acted {limits.turns} times; raise limits.turns and retry it"
        elif size > MAX_BYTES:
            self._limit = f"its agent wrote more than {MAX_BYTES >> 20} MiB"
        if self._limit is not None:
            await self._end_turn(turn)

    async def _watch(self, turn: Turn) -> None:
        """See when a person wants the agent to listen at once."""
        while True:
            await asyncio.sleep(WATCH_S)
            with contextlib.suppress(PlatformError):
                if (await self._state.get(self._place.task)).stop == "interrupt":
                    self._was_interrupted = True
                    await self._end_turn(turn)
                    return

    async def _end_turn(self, turn: Turn) -> None:
        agent = self._place.agent
        await self._place.box.run(interrupt_line(agent, turn), timeout_s=interrupt_seconds(agent) + 10)

    async def _tell(self, attempt: Attempt, entries: Sequence[Entry], reader: StreamReader) -> None:
        """What the card of the task shows, not more often than somebody can read it."""
        action = next((words for entry in reversed(entries) if (words := action_of(entry))), None)
        now = time.monotonic()
        if action is None or now - self._told_at < TELL_S:
            return
        self._told_at = now
        usage = reader.usage

        def change(task: Task) -> dict[str, Any]:
            changed = tuple(
                replace(one, turn_usage=usage) if one.number == attempt.number else one for one in task.attempts
            )
            return {"last_action": action, "attempts": changed}

        await self._state.update(self._place.task, change)

    def _hidden(self, text: str) -> str:
        for value, name in self._place.hidden.items():
            text = text.replace(value, name)
        return text


def attempt_of(task: Task, number: int) -> Attempt:
    return next(attempt for attempt in task.attempts if attempt.number == number)


def hidden_values(values: dict[str, str]) -> dict[str, str]:
    """What must not be shown, also as it stands inside JSON. Very short values would hide half of the text."""
    found: dict[str, str] = {}
    for name, value in values.items():
        for form in (value, json.dumps(value)[1:-1]):
            if len(form) >= 6:
                found[form] = f"[{name}]"
    return found


def action_of(entry: Entry) -> str | None:
    """One line for a card."""
    data = entry.data
    match entry.kind:
        case EntryKind.COMMAND:
            words = f"$ {data.get('command') or entry.text}"
        case EntryKind.EDIT:
            words = f"edits {data.get('path') or entry.text}"
        case EntryKind.TOOL:
            words = f"{data.get('name') or entry.text}"
        case EntryKind.TEST:
            words = f"runs {data.get('command') or entry.text}"
        case EntryKind.MESSAGE | EntryKind.QUESTION | EntryKind.GIT:
            words = entry.text
        case _:
            return None
    line = next((line.strip() for line in str(words).splitlines() if line.strip()), "")
    return line[:MAX_ACTION] or None
