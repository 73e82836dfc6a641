"""How entries of a timeline become lines."""

from __future__ import annotations

from typing import Any

import pytest

from sandlot.cli import output
from sandlot.cli.timeline import TimelineView

TASK = {"created_at": "2026-01-01T00:00:00+00:00", "attempt_count": 1}


def entry(kind: str, text: str = "", at: int = 1, attempt: int = 1, **data: Any) -> dict[str, Any]:
    return {"kind": kind, "text": text, "at": f"2026-01-01T00:{at:02}:00+00:00", "data": data, "attempt": attempt}


def shown(*entries: dict[str, Any], **options: Any) -> list[str]:
    view = TimelineView({**TASK, **options.pop("task", {})}, **options)
    return [line.strip() for one in entries for line in view.lines(one)] + [line.strip() for line in view.rest()]


def test_every_kind_of_entry_has_a_form_and_none_obeys_the_guest() -> None:
    from sandlot.platform.core.tasks import EntryKind

    for kind in EntryKind:
        lines = shown(
            entry(kind.value, "some \x1b[2Jtext", command="ls \x07", name="n\x1b", path="p\r", status="failed")
        )
        assert all(line.isprintable() for line in lines), (kind, lines)
        assert lines or kind is EntryKind.USAGE


def test_a_command_is_shown_once_with_its_end() -> None:
    begun = entry("command", id="7", command="make", running=True)
    assert shown(begun, entry("command", id="7", output="ok\n", exit_code=0, at=2)) == ["2:00  $ make", "ok"]
    assert shown(begun) == ["$ make", "(its end was not seen)"]
    other = entry("command", id="7", command="other", exit_code=0, attempt=2)
    assert "make" in shown(begun, other)[-2]  # ids belong to their attempts


def test_what_was_shown_is_not_told_again() -> None:
    ran = entry("command", id="1", command="pytest", output="boom", exit_code=1)
    again = entry("test", command="pytest", passed=2, failed=1, output="boom", exit_code=1)
    assert shown(ran, again)[2:] == ["1:00  ✗ pytest  2 passed, 1 failed"]
    assert "boom" in shown(again)[1]  # of a check, nothing was shown before
    said = entry("message", "All done.")
    assert shown(said, entry("result", "All done.")) == shown(said)
    assert shown(said, entry("result", "Another end."))[1:] == ["1:00  ■ Another end."]
    committed = entry("command", id="2", command="git commit -qm x", output="", exit_code=0)
    assert shown(committed, entry("git", "git commit -qm x", action="commit")) == shown(committed)
    assert "58f6f9b244" in shown(entry("git", "feat: x", action="commit", sha="58f6f9b2448a"))[0]


def test_a_tool_is_shown_once_and_what_it_read_only_when_asked() -> None:
    begun = entry("tool", id="3", name="Read", input={"file_path": "/home/user/app/a.py"})
    ended = entry("tool", id="3", name="Read", output="text", ok=True)
    assert shown(begun, ended) == ["1:00  · Read /home/user/app/a.py"]
    assert shown(begun, ended, full=True)[1:] == ["text"]
    assert shown(begun, entry("tool", id="3", output="no such file", ok=False))[1:] == ["no such file"]


def test_long_output_is_folded_to_its_end_and_shown_whole_when_asked() -> None:
    long = entry("command", id="1", command="x", output="\n".join(map(str, range(100))), exit_code=0)
    assert shown(long) == ["1:00  $ x", "… 97 lines", "97", "98", "99"]
    assert len(shown(long, full=True)) == 101


def test_steps_are_shown_when_they_ended_with_their_time_and_problem() -> None:
    steps = [entry("step", name="push", status="running", at=1), entry("step", name="push", status="done", at=2)]
    assert shown(*steps) == ["2:00  ✓ push  60.0 s"]
    failed = entry("step", name="pull_request", status="failed", problem="GitHub says 500\nmore")
    assert shown(failed) == ["1:00  ✗ pull request: GitHub says 500"]


def test_questions_have_their_options_and_attempts_their_numbers() -> None:
    asked = entry("question", text="Which?", options=["a", "b"], attempt=2)
    assert shown(asked, task={"attempt_count": 2}) == ["1:00  [2] ? Which?", "[2]     1. a", "[2]     2. b"]


def test_diffs_are_coloured_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    edit = entry("edit", path="a.py", added=1, removed=1, diff="@@ -1 +1 @@\n-old\n+new\n")
    assert shown(edit) == ["1:00  ✎ a.py  +1 -1", "@@ -1 +1 @@", "-old", "+new"]
    monkeypatch.setattr(output, "is_fancy", lambda stream=None: True)
    assert "\x1b[31m-old\x1b[0m" in shown(edit) and "\x1b[32m+new\x1b[0m" in shown(edit)
