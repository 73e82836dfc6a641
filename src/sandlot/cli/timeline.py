"""How a timeline looks in a terminal: one entry becomes a few lines, and what is long is folded."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from sandlot.cli import diffs
from sandlot.cli.output import paint, plain

WIDTH = 100
CLOCK = 7  # columns for the time of an entry
FOLDED_OK, FOLDED_FAILED, FOLDED_DIFF, FOLDED_TEXT = 3, 15, 12, 12
STATES = {
    "todo": "dim",
    "queued": "dim",
    "working": "cyan",
    "needs_you": "yellow",
    "review": "magenta",
    "done": "green",
    "failed": "red",
    "cancelled": "dim",
}
Data = Mapping[str, Any]


class TimelineView:
    """Turns entries into lines. It remembers what has begun, so that a command is shown once, with its end."""

    def __init__(self, task: Data, *, full: bool = False, width: int = WIDTH) -> None:
        self._began = datetime.fromisoformat(task["created_at"])
        self._several = int(task.get("attempt_count", 1)) > 1
        self._full, self._width = full, max(40, width) - CLOCK - 2
        self._open: dict[str, dict[str, Any]] = {}
        self._steps: dict[tuple[int, str], datetime] = {}
        self._last = ""  # what was said or run last: some entries tell the same again
        self.now = ""  # what it is doing

    def lines(self, entry: Data) -> list[str]:
        kind = str(entry["kind"])
        shown = getattr(self, f"_{kind}", self._other)(entry)
        at = datetime.fromisoformat(entry["at"]) if entry.get("at") else self._began
        return self._with_time(at, entry, shown)

    def rest(self) -> list[str]:
        """What had begun and was not seen to end."""
        left, self._open = list(self._open.values()), {}
        return [line for entry in left for line in self._with_time(None, entry, self._ended(entry, left=True))]

    def _with_time(self, at: datetime | None, entry: Data, shown: Iterator[str]) -> list[str]:
        lines = list(shown)
        clock = _elapsed((at - self._began).total_seconds()) if at is not None else ""
        who = paint(f"[{entry.get('attempt', 1)}] ", "dim") if self._several else ""
        margin = " " * (CLOCK + 2)
        first = paint(clock.rjust(CLOCK), "dim") + "  "
        return [f"{first if number == 0 else margin}{who}{line}" for number, line in enumerate(lines)]

    # -- what agents say and do -------------------------------------------------------------------------------------

    def _message(self, entry: Data) -> Iterator[str]:
        self._last = str(entry["text"]).strip()
        yield from self._text(entry["text"])

    def _thinking(self, entry: Data) -> Iterator[str]:
        self.now = "thinking"
        for line in self._text(entry["text"], limit=2):
            yield paint(line, "dim")

    def _prompt(self, entry: Data) -> Iterator[str]:
        kind = entry["data"].get("kind")
        if kind not in (None, "message"):  # what the platform sends back: a review, failing checks, a conflict
            yield paint(
                f"› {plain(str(kind))} go back to the agent" if kind == "checks" else f"› {plain(str(kind))}", "yellow"
            )
        for number, line in enumerate(self._text(entry["text"])):
            yield paint(f"{'›' if number == 0 and kind in (None, 'message') else ' '} {line}", "bold")

    def _command(self, entry: Data) -> Iterator[str]:
        data = {**self._open.pop(_id(entry), {}).get("data", {}), **entry["data"]}
        merged = {**entry, "data": data}
        if _has_begun(entry):
            self._open[_id(entry)] = merged
            self.now = _first_line(data.get("command") or data.get("name") or entry["text"])
            return
        yield from self._ended(merged)

    _tool = _command

    def _ended(self, entry: Data, *, left: bool = False) -> Iterator[str]:
        data = entry["data"]
        if entry["kind"] == "tool":
            name = plain(str(data.get("name") or entry["text"]))
            yield f"{paint('·', 'cyan')} {name} {paint(self._cut(_short(data.get('input'))), 'dim')}".rstrip()
            code: Any = 1 if data.get("ok") is False else 0
            if not code and not self._full:  # what it read is of interest to the agent
                return
        else:
            self._last = str(data.get("command") or entry["text"]).strip()
            code = data.get("exit_code")
            mark = paint(f"  exit code {code}", "red") if code else ""
            lines = self._text(data.get("command") or entry["text"], limit=6)
            for number, line in enumerate(lines):
                last = number == len(lines) - 1
                yield f"{paint('$' if number == 0 else ' ', 'cyan')} {line}{mark if last else ''}"
        if left:
            yield paint("  (its end was not seen)", "dim")
        yield from self._folded(str(data.get("output") or ""), FOLDED_FAILED if code else FOLDED_OK)

    def _edit(self, entry: Data) -> Iterator[str]:
        data = entry["data"]
        counts = ""
        if data.get("added") is not None or data.get("removed") is not None:
            counts = diffs.counts(data.get("added") or 0, data.get("removed") or 0)
        yield f"{paint('✎', 'cyan')} {plain(str(data.get('path') or entry['text']))}  {counts}".rstrip()
        lines = list(diffs.patch_lines(str(data.get("diff") or "")))
        for line in self._first(lines, FOLDED_DIFF):
            yield f"  {line}"

    def _test(self, entry: Data) -> Iterator[str]:
        data = entry["data"]
        good = data.get("exit_code") == 0 if data.get("exit_code") is not None else not data.get("failed")
        counts = ", ".join(f"{data[name]} {name}" for name in ("passed", "failed") if data.get(name))
        command = str(data.get("command") or entry["text"])
        yield f"{_mark(good)} {self._cut(_first_line(command))}  {counts}".rstrip()
        if self._full or (not good and command.strip() != self._last):  # else the command has shown it
            yield from self._folded(str(data.get("output") or ""), FOLDED_FAILED)

    def _git(self, entry: Data) -> Iterator[str]:
        data = entry["data"]
        if not data.get("sha") and str(data.get("text") or entry["text"]).strip() == self._last:
            return
        action = plain(str(data.get("action") or "git")).replace("_", " ")
        sha = paint(f" {plain(str(data['sha']))[:10]}", "dim") if data.get("sha") else ""
        said = _first_line(data.get("text") or entry["text"])
        yield f"{paint('⎇', 'magenta')} {action}{sha} {self._cut(said)}".rstrip()

    def _question(self, entry: Data) -> Iterator[str]:
        for number, line in enumerate(self._text(entry["data"].get("text") or entry["text"])):
            yield paint(f"{'?' if number == 0 else ' '} {line}", "yellow")
        for number, option in enumerate(entry["data"].get("options") or (), 1):
            yield f"    {number}. {self._cut(plain(str(option)))}"

    def _error(self, entry: Data) -> Iterator[str]:
        for number, line in enumerate(self._text(entry["text"], limit=FOLDED_FAILED)):
            yield paint(f"{'✗' if number == 0 else ' '} {line}", "red")

    def _result(self, entry: Data) -> Iterator[str]:
        text = str(entry["text"] or entry["data"].get("text") or "")
        for number, line in enumerate(() if text.strip() == self._last else self._text(text)):
            yield f"{paint('■', 'green') if number == 0 else ' '} {line}"

    def _usage(self, entry: Data) -> Iterator[str]:
        yield from ()

    # -- what the platform does -------------------------------------------------------------------------------------

    def _step(self, entry: Data) -> Iterator[str]:
        data = entry["data"]
        name, status = plain(str(data.get("name") or entry["text"])), data.get("status")
        key = (int(entry.get("attempt", 1)), name)
        at = datetime.fromisoformat(entry["at"])
        if status == "running":
            self._steps[key] = at
            self.now = name
        elif status == "done":
            took = f"{(at - self._steps.pop(key, at)).total_seconds():.1f} s"
            yield paint(f"✓ {name.replace('_', ' ')}  {took}", "dim")
        elif status == "failed":
            problem = _first_line(data.get("problem") or entry["text"])
            yield f"{_mark(False)} {name.replace('_', ' ')}: {problem}"

    def _state(self, entry: Data) -> Iterator[str]:
        to = str(entry["data"].get("to") or entry["data"].get("state") or "")
        reason = _first_line(entry["data"].get("reason") or entry["text"])
        self.now = to
        yield f"{paint('●', STATES.get(to, 'dim'))} {state_word(to)}" + (f": {reason}" if reason else "")

    def _other(self, entry: Data) -> Iterator[str]:
        yield f"{plain(str(entry['kind']))} {_first_line(entry['text'])}"

    # -- text -------------------------------------------------------------------------------------------------------

    def _text(self, text: str, limit: int = FOLDED_TEXT) -> list[str]:
        found: list[str] = []
        for line in plain(str(text)).strip("\n").expandtabs(4).splitlines():
            found += textwrap.wrap(line, self._width, replace_whitespace=False) or [""]
        return list(self._first(found, limit))

    def _first(self, lines: list[str], limit: int) -> Iterator[str]:
        if self._full or len(lines) <= limit + 1:
            yield from lines
            return
        yield from lines[:limit]
        yield paint(f"… {len(lines) - limit} more lines", "dim")

    def _folded(self, text: str, limit: int) -> Iterator[str]:
        """The end of an output is where it says how it went."""
        lines = plain(text).strip("\n").expandtabs(4).splitlines()
        hidden = 0 if self._full or len(lines) <= limit + 1 else len(lines) - limit
        if hidden:
            yield paint(f"  … {hidden} lines", "dim")
        for line in lines[hidden:]:
            yield paint(f"  {line if self._full else self._cut(line)}", "dim")

    def _cut(self, text: str) -> str:
        return text if len(text) <= self._width - 4 else text[: self._width - 5] + "…"


def state_word(state: str) -> str:
    return {"needs_you": "needs you", "review": "in review"}.get(state, state)


def painted_state(state: str) -> str:
    return paint(state_word(state), STATES.get(state, "dim"))


def _mark(good: bool) -> str:
    return paint("✓", "green") if good else paint("✗", "red")


def _has_begun(entry: Data) -> bool:
    """And not ended: another entry of the same id comes."""
    data = entry["data"]
    if data.get("running") is not None or entry["kind"] == "command":
        return bool(data.get("running"))
    return data.get("id") is not None and data.get("output") is None and data.get("ok") is None


def _id(entry: Data) -> str:
    return f"{entry.get('attempt', 1)} {entry['kind']} {entry['data'].get('id')}"


def _first_line(text: Any) -> str:
    return plain(str(text or "")).strip().partition("\n")[0]


def _short(value: Any) -> str:
    import json

    if value in (None, "", {}):
        return ""
    if isinstance(value, dict) and isinstance(value.get("file_path"), str):
        return plain(value["file_path"]).replace("\n", " ")
    if isinstance(value, dict) and isinstance(value.get("todos"), list):
        items = [str(item.get("content", "")) for item in value["todos"] if isinstance(item, dict)]
        return plain("; ".join(items)).replace("\n", " ")
    return plain(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).replace("\n", " ")


def _elapsed(seconds: float) -> str:
    whole = max(0, int(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
