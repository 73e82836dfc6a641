"""What a reader remembers of one turn, and the entries that it makes: the same for all agents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sandlot import bounded_json
from sandlot.platform.agents.readers.commands import bare_command, commit_sha, counted, git_action, runs_tests
from sandlot.platform.agents.readers.diffs import FileEdit
from sandlot.platform.agents.readers.values import MOST_TEXT, tidy
from sandlot.platform.agents.reading import TurnEnd
from sandlot.platform.core.models import NANO, ModelTokens
from sandlot.platform.core.tasks import Entry, EntryKind, TokenUsage
from sandlot.platform.models.prices import Prices

ASKING = "QUESTION:"
"""How an agent asks: the last paragraph of its result begins so. Choices may follow, one `- choice` in a line."""
MOST_CALLS = 5000  # that are open at once; what is beyond is forgotten
MOST_OUTPUT = 32_000
TAIL = 1500  # characters of what it complained about that explain an end
_CHOICE = re.compile(r"^\s*(?:[-*]|\d+[.)])\s+(.+)$")


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that is at work."""

    id: str
    name: str
    input: Mapping[str, Any]
    command: str | None = None


class TurnNotes:
    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self.directory = ""
        self.model: str | None = None
        self.session: str | None = None
        self.spent = TokenUsage()
        self.usage = TokenUsage()
        self.result = ""
        self.turns: int | None = None
        self.problem: str | None = None
        self.question: Entry | None = None
        self.ended = False  # it said itself that it is done
        self._calls: dict[str, Call] = {}

    # -- entries ----------------------------------------------------------------------------------------------------

    def message(self, text: str) -> Iterator[Entry]:
        if text.strip():
            self.result = text
            yield Entry(kind=EntryKind.MESSAGE, text=text)

    def thinking(self, text: str) -> Iterator[Entry]:
        if text.strip():
            yield Entry(kind=EntryKind.THINKING, text=text)

    def error(self, text: str, *, fatal: bool = False) -> Iterator[Entry]:
        if fatal:
            self.problem = text[:TAIL]
        yield Entry(kind=EntryKind.ERROR, text=text, data={"fatal": fatal})

    def ask(self, text: str, options: Sequence[str] = ()) -> Iterator[Entry]:
        choices = [option[:500] for option in options[:20]]
        self.question = Entry(kind=EntryKind.QUESTION, text=text, data={"text": text, "options": choices})
        yield self.question

    def edit(self, change: FileEdit) -> Entry:
        path = self.relative(change.path)
        data: dict[str, Any] = {"path": path}
        if change.added is not None:
            data |= {"added": change.added, "removed": change.removed, "diff": change.diff}
        return Entry(kind=EntryKind.EDIT, text=path, data=data)

    def begin(self, id: str, name: str, input: Mapping[str, Any], command: str | None = None) -> Iterator[Entry]:
        """A tool begins; with `command` it is a shell."""
        command = bare_command(command) if command is not None else None
        if len(self._calls) < MOST_CALLS:
            self._calls[id] = Call(id, name, input, command)
        if command is not None:
            data: dict[str, Any] = {"id": id, "command": command, "running": True}
            yield Entry(kind=EntryKind.COMMAND, text=command, data=data)
        else:
            yield Entry(kind=EntryKind.TOOL, text=name, data={"id": id, "name": name, "input": tidy(input)})

    def hold(self, id: str, name: str, input: Mapping[str, Any]) -> None:
        """A tool begins of which nothing is told until it has ended."""
        if len(self._calls) < MOST_CALLS:
            self._calls[id] = Call(id, name, input)

    def knows(self, id: str) -> bool:
        return id in self._calls

    def take(self, id: str) -> Call | None:
        """The call that ends now."""
        return self._calls.pop(id, None)

    def finish(self, call: Call, output: str, *, ok: bool, exit_code: int | None = None) -> Iterator[Entry]:
        if call.command is None:
            data = {"id": call.id, "name": call.name, "input": tidy(call.input), "output": _tail(output), "ok": ok}
            yield Entry(kind=EntryKind.TOOL, text=call.name, data=data)
            return
        code = exit_code if exit_code is not None else (0 if ok else 1)
        told = {"command": call.command, "output": _tail(output), "exit_code": code}
        yield Entry(kind=EntryKind.COMMAND, text=call.command, data={"id": call.id, **told, "running": False})
        if runs_tests(call.command):
            counts = counted(output)
            data = {**told, "passed": counts.passed, "failed": counts.failed}
            yield Entry(kind=EntryKind.TEST, text=call.command, data=data)
        action = git_action(call.command)
        if action is not None and code == 0:
            data = {"action": action, "text": _tail(output, 2000), "sha": commit_sha(output)}
            yield Entry(kind=EntryKind.GIT, text=call.command, data=data)

    def used(self, usage: TokenUsage) -> Iterator[Entry]:
        """All that was used in this turn so far; a cost that the agent does not tell is that of its model's prices."""
        usage = self._priced(usage)
        if usage != self.usage:
            self.usage = usage
            data = {"input": usage.input, "output": usage.output, "cached": usage.cached, "cost_usd": usage.cost_usd}
            yield Entry(kind=EntryKind.USAGE, data=data)

    def guess(self, usage: TokenUsage) -> None:
        """What was probably used so far: limits are checked against it, until the agent tells."""
        self.usage = self._priced(usage)

    def _priced(self, usage: TokenUsage) -> TokenUsage:
        if usage.cost_usd is None and self.model is not None:
            tokens = ModelTokens(input=usage.input, output=usage.output, cached=min(usage.cached, usage.input))
            known = self._prices.known(self.model, tokens)
            cost = round(known / NANO, 6) if known is not None else None
            usage = TokenUsage(input=usage.input, output=usage.output, cached=usage.cached, cost_usd=cost)
        return usage

    def relative(self, path: str) -> str:
        """As seen from the checkout."""
        home = self.directory.rstrip("/") + "/"
        return path[len(home) :] if len(home) > 1 and path.startswith(home) else path

    # -- the end ----------------------------------------------------------------------------------------------------

    def end(self, exit_code: int | None, errors: str, *, says_so: bool) -> TurnEnd:
        """`says_so`: an agent of this kind tells when it is done."""
        entries = list(self._unfinished())
        told = self.problem is not None
        self.problem = self._ended_by(exit_code, errors, says_so=says_so)
        entries += self._asked()
        if self.problem is not None:
            entries += () if told else self.error(self.problem, fatal=True)
        else:
            data = {"text": self.result, "cost_usd": self.usage.cost_usd, "turns": self.turns}
            entries.append(Entry(kind=EntryKind.RESULT, text=self.result, data=data))
        return TurnEnd(
            entries=tuple(entries),
            agent_session=self.session,
            usage=self.usage,
            result=self.result,
            problem=self.problem,
            question=self.question.text if self.question is not None else None,
        )

    def _unfinished(self) -> Iterable[Entry]:
        for call in list(self._calls.values()):
            data: dict[str, Any] = {"id": call.id, "unfinished": True}
            if call.command is not None:
                data |= {"command": call.command, "running": False, "exit_code": None}
                yield Entry(kind=EntryKind.COMMAND, text=call.command, data=data)
            else:
                data |= {"name": call.name, "input": tidy(call.input), "ok": False}
                yield Entry(kind=EntryKind.TOOL, text=call.name, data=data)
        self._calls.clear()

    def _ended_by(self, exit_code: int | None, errors: str, *, says_so: bool) -> str | None:
        if exit_code == 0 and (self.ended or not says_so):
            return self.problem
        complaint = bounded_json.text(errors[-TAIL:], TAIL).strip()
        if exit_code is None:
            cause = "the agent was lost with its sandbox's processes"
        elif exit_code == 0:
            cause = "the agent ended without a result"
        elif exit_code == 127:
            cause = "the agent's program is not in this sandbox: use a template that has it"
        elif exit_code in (130, 137, 143):
            cause = f"the agent was interrupted (exit code {exit_code})"
        else:
            cause = f"the agent ended with exit code {exit_code}"
        said = self.problem or complaint
        return f"{cause}: {said}" if said else cause

    def _asked(self) -> Iterator[Entry]:
        place = self.result.rfind(ASKING)
        if self.question is None and place >= 0 and self.result[:place].rstrip(" ")[-1:] in ("", "\n", "*"):
            lines = self.result[place + len(ASKING) :].strip(" *\n").splitlines()
            choices = [match[1] for line in lines if (match := _CHOICE.match(line))]
            text = "\n".join(line for line in lines if not _CHOICE.match(line)).strip()
            yield from self.ask(text[:MOST_TEXT] or "The agent asks.", choices)


def _tail(output: str, most: int = MOST_OUTPUT) -> str:
    return output if len(output) <= most else "… " + output[-most:]
