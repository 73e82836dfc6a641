"""The words of commits that nobody wrote: types, scopes, subjects."""

from __future__ import annotations

import pytest

from sandlot.platform.tasks.commit_text import MAX_SUBJECT, is_conventional, message_of, subject_of


@pytest.mark.parametrize(
    ("title", "paths", "subject"),
    [
        (
            "Fix rounding: a cent is lost",
            ["split/shares.py", "tests/test_s.py", "README.md"],
            "fix(split): rounding: a cent is lost",
        ),
        ("Add a /health route", ["src/api/health.py", "tests/test_health.py"], "feat(api): add a /health route"),
        ("Say how it is installed.", ["README.md", "docs/install.md"], "docs: say how it is installed"),
        ("Cover the parser", ["tests/test_parser.py"], "test: cover the parser"),
        ("Bump the version", ["VERSION"], "chore: bump the version"),
        ("Newer libraries", ["pyproject.toml", "requirements.lock"], "build: newer libraries"),
        ("API keys end", ["keys.py"], "chore: API keys end"),
        ("feat(ui): dark theme", ["web/theme.css"], "feat(ui): dark theme"),
        ("Fix", ["a.py"], "fix: fix"),
    ],
)
def test_a_subject_is_made_of_what_was_asked_for_and_what_was_changed(
    title: str, paths: list[str], subject: str
) -> None:
    assert subject_of(title, paths) == subject
    assert is_conventional(subject)


def test_a_subject_is_one_short_line() -> None:
    subject = subject_of("Make it\n\nbetter " * 40, ["a.py"])
    assert len(subject) <= MAX_SUBJECT and "\n" not in subject and is_conventional(subject)


def test_a_message_names_the_task_and_its_agent() -> None:
    text = message_of("Fix it", ["a.py"], body="Because.\0", task="bcd", agent="Claude Code", agent_id="claude")
    assert (
        text.startswith("fix: it\n\nBecause.\n\nTask: bcd\nCo-authored-by: Claude Code <claude@") and "\0" not in text
    )
