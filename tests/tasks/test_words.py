"""Words and numbers of tasks: commit subjects, pull requests, lines of hostile output, pauses between tries, scores."""

from __future__ import annotations

import random

import pytest

from sandlot.platform.core.tasks import Attempt, AttemptStatus, ChangeCount, CheckResult, Task, TaskSpec, TaskStatus
from sandlot.platform.core.tasks import TokenUsage as Usage
from sandlot.platform.tasks.checkout import person_of
from sandlot.platform.tasks.commit_text import is_conventional, message_of, subject_of
from sandlot.platform.tasks.following import CUT, MAX_LINE, Lines
from sandlot.platform.tasks.pull_text import pull_body
from sandlot.platform.tasks.scoring import best_of
from sandlot.platform.tasks.steps import LONGEST_ASKED_S, LONGEST_WAIT_S, pause_s
from sandlot.platform.tasks.turns import hidden_values
from sandlot.wiring.clock import now


@pytest.mark.parametrize(
    ("title", "paths", "subject"),
    [
        ("Fix the login", ["src/auth/login.py", "src/auth/session.py"], "fix(auth): the login"),
        ("Describe the API", ["docs/api.md", "README.md"], "docs: describe the API"),
        ("Cover the parser", ["tests/test_parser.py"], "test: cover the parser"),
        ("feat(api)!: drop v1", ["a.py"], "feat(api)!: drop v1"),
        ("Add a /health route.", ["app/main.py", "app/health.py"], "feat(app): add a /health route"),
        ("Raise it", ["package.json", "package-lock.json"], "build: raise it"),
        ("HTTP answers are wrong", ["a.py", "lib/b.py"], "fix: HTTP answers are wrong"),
    ],
)
def test_a_subject_is_made_from_the_title_and_what_was_changed(title: str, paths: list[str], subject: str) -> None:
    assert subject_of(title, paths) == subject and is_conventional(subject)


def test_long_titles_and_odd_names_still_make_a_commit() -> None:
    made = message_of("x" * 500, ["ä ö/ü.py"], body="- one", task="abc", agent="Claude Code", agent_id="claude")
    first, _, rest = made.partition("\n")
    assert is_conventional(first) and len(first) <= 72 and "Co-authored-by: Claude Code <claude@" in rest
    for wrong in ("stuff", "feat:no space", "Feat: x", "feat(): x", "wip: x", ""):
        assert not is_conventional(wrong)
    assert person_of("a <b>\n").name == "a b" and person_of("ada@example.org").email == "ada@example.org"
    assert person_of("../../x y").email == "x-y@users.sandlot.invalid"


def _attempt(number: int, status: AttemptStatus, size: int = 1, cost: float = 0.0, seconds: float = 0.0) -> Attempt:
    changes, usage = ChangeCount(added=size), Usage(cost_usd=cost)
    return Attempt(number=number, agent="a", status=status, changes=changes, usage=usage, seconds=seconds)


def test_checks_choose_first_then_size_money_and_time() -> None:
    ready, failing = AttemptStatus.READY, AttemptStatus.FAILING
    assert best_of([_attempt(1, failing), _attempt(2, ready, size=900)]).number == 2
    assert best_of([_attempt(1, ready, 5), _attempt(2, ready, 4, cost=9)]).number == 2
    assert best_of([_attempt(1, ready, cost=2), _attempt(2, ready, cost=1, seconds=99)]).number == 2
    assert best_of([_attempt(1, ready, seconds=2), _attempt(2, ready, seconds=1)]).number == 2
    assert best_of([_attempt(1, AttemptStatus.FAILED), _attempt(2, AttemptStatus.UNCHANGED)]).number == 2


def test_output_of_checks_cannot_leave_its_place_in_a_pull_request() -> None:
    output = "````\n</details><script>x</script>\n" + "y" * 100_000
    check = CheckResult(command="<b>pytest</b>", exit_code=1, output=output)
    spec = TaskSpec(repository="app", prompt="Do it", title="Do it", agent="a", issue="https://example.org/issues/1")
    task = Task(id="t1", user_id="ann", status=TaskStatus.WORKING, spec=spec, created_at=now())
    attempt = Attempt(number=1, agent="a", checks=(check,), result="Done.", turn=2)
    body = pull_body(task, attempt, agent="An agent", timeline="/console/tasks/t1")
    assert len(body) < 20_000 and "<b>pytest" not in body and "Closes https://example.org/issues/1" in body
    short = CheckResult(command="x", exit_code=0, output="````\nfenced\n````")
    body = pull_body(task, Attempt(number=1, agent="a", checks=(short,)), agent="An agent", timeline="/x")
    assert "`````text\n````\nfenced\n````\n`````" in body


@pytest.mark.parametrize("seed", range(6))
def test_lines_are_the_same_however_the_pieces_were_cut(seed: int) -> None:
    """What a restarted platform reads must be what the first one stored, with the same offsets."""
    chance = random.Random(seed)
    sizes_of_lines = (0, 5, MAX_LINE - 1, MAX_LINE, MAX_LINE + 7)
    letters = bytes(chance.choices(b"ab\xc3\xa4\r", k=1000)) * (MAX_LINE // 1000 + 2)
    whole = b"".join(letters[: chance.choice(sizes_of_lines)] + b"\n" for _ in range(6))
    whole += b"no end"

    def read(sizes: tuple[int, ...]) -> list[tuple[str, int]]:
        lines, found, place = Lines(), list[tuple[str, int]](), 0
        while place < len(whole):
            size = chance.choice(sizes)
            found += lines.feed(whole[place : place + size])
            place += size
        return [*found, *lines.last()]

    large, small = read((384 << 10,)), read((70_000, 300_000, 1001))
    assert large == small and large[-1] == ("no end", len(whole))
    assert all(len(text) <= MAX_LINE + len(CUT) for text, _ in large)
    assert [place for _, place in large] == sorted({place for _, place in large})


def test_a_line_without_an_end_takes_no_memory() -> None:
    lines = Lines()
    found = [line for _ in range(50) for line in lines.feed(b"x" * (256 << 10))]
    assert len(found) == 1 and found[0][0].endswith(CUT) and len(lines._rest) <= MAX_LINE + (256 << 10)
    assert [text for text, _ in lines.feed(b"\nnext\n")] == ["next"]


def test_pauses_grow_differ_and_obey_a_forge_that_names_a_time() -> None:
    waits = [pause_s(attempt) for attempt in range(1, 9)]
    assert all(0 < wait <= LONGEST_WAIT_S for wait in waits) and waits[5] > waits[0]
    assert len({pause_s(4) for _ in range(10)}) > 5
    assert pause_s(1, 120) >= 120 and pause_s(1, 1e9) == LONGEST_ASKED_S


def test_secrets_are_hidden_also_as_they_stand_in_json() -> None:
    hidden = hidden_values({"KEY": 'pass"word1', "SHORT": "abc"})
    assert set(hidden) == {'pass"word1', 'pass\\"word1'} and set(hidden.values()) == {"[KEY]"}
