"""What shell commands are about: which run tests and how these went, which change what git has."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

MOST_COMMAND, MOST_OUTPUT = 4000, 60_000
_START = r"(?:^|[;&|(]\s*|\bthen\s+)(?:\w+=\S*\s+|sudo\s+|env\s+|time\s+|timeout\s+\S+\s+|npx\s+|uv run\s+|poetry run\s+|bundle exec\s+|exec\s+)*"
_TESTS = re.compile(
    _START + r"(?:\S*/)?(?:pytest|py\.test|tox|nox|jest|vitest|mocha|ava|rspec|phpunit|ctest|behave"
    r"|python[\d.]*\s+(?:-\S+\s+)*-m\s+(?:pytest|unittest|nose2|doctest)"
    r"|(?:npm|pnpm|yarn|bun|deno|go|cargo|dotnet|swift|mix|mvn|\./mvnw|gradle|\./gradlew|zig build|bazel|rake|make|just|task)\s+(?:run\s+)?(?:-\S+\s+)*(?:test|tests|check|unit)\b"
    r"|node\s+(?:-\S+\s+)*--test\b|\./(?:run[-_]?)?tests?(?:\.sh)?\b)"
)
_GIT = re.compile(
    _START
    + r"git\s+(?:-[cC]\s+\S+\s+|--\S+\s+)*(commit|push|pull|merge|rebase|checkout|switch|tag|revert|cherry-pick|reset|stash)\b"
)
_SHA = re.compile(r"^(?:\[\S+(?: \([\w-]+\))? ([0-9a-f]{7,40})\]|([0-9a-f]{7,40})(?= \S))", re.MULTILINE)
_WRAPPED = re.compile(r"^(?:/usr)?(?:/bin/)?(?:ba|z|da)?sh -l?c ")
_COUNTS = {
    "passed": (r"(?<!\d)(\d{1,9}) pass(?:ed|ing)\b", r"^# pass (\d{1,9})", r"^ℹ pass (\d{1,9})"),
    "failed": (r"(?<!\d)(\d{1,9}) fail(?:ed|ing|ures?)\b", r"^# fail (\d{1,9})", r"^ℹ fail (\d{1,9})"),
}


@dataclass(frozen=True, slots=True)
class TestCounts:
    """None where the output does not say."""

    passed: int | None = None
    failed: int | None = None


def bare_command(command: str) -> str:
    """What a person would type: without the shell that an agent puts around it."""
    if _WRAPPED.match(command[:40]) and len(command) <= MOST_COMMAND:
        try:
            words = shlex.split(command)
        except ValueError:
            return command
        if len(words) == 3:
            return words[2]
    return command


def runs_tests(command: str) -> bool:
    return _TESTS.search(command[:MOST_COMMAND]) is not None


def git_action(command: str) -> str | None:
    """The last thing in it that changes a repository."""
    found = _GIT.findall(command[:MOST_COMMAND])
    return found[-1] if found else None


def commit_sha(output: str) -> str | None:
    """Of the commit that `git commit`, or `git log --oneline` after it, tells of."""
    found = _SHA.search(output[:MOST_OUTPUT])
    return (found[1] or found[2]) if found else None


def counted(output: str) -> TestCounts:
    """How many tests passed and failed, as common test programs say it."""
    tail = output[-MOST_OUTPUT:]
    return _unittest(tail) or _go(tail) or _summary(tail)


def _unittest(output: str) -> TestCounts | None:
    ran = re.findall(r"^Ran (\d{1,9}) tests? in ", output, re.MULTILINE)
    if not ran:
        return None
    failed = sum(int(number) for number in re.findall(r"(?:failures|errors)=(\d{1,9})", output.rsplit("Ran ", 1)[-1]))
    return TestCounts(max(int(ran[-1]) - failed, 0), failed)


def _go(output: str) -> TestCounts | None:
    passed = len(re.findall(r"^[ \t]*--- PASS: ", output, re.MULTILINE))
    failed = len(re.findall(r"^[ \t]*--- FAIL: ", output, re.MULTILINE))
    return TestCounts(passed, failed) if passed or failed else None


def _summary(output: str) -> TestCounts:
    lines = output.splitlines()[-60:]
    counts: dict[str, int | None] = {}
    for name, patterns in _COUNTS.items():
        found = [
            int(match[1][:9]) for line in lines for pattern in patterns if (match := re.search(pattern, line[:1000]))
        ]
        counts[name] = found[-1] if found else None
    if counts["passed"] is not None and counts["failed"] is None:
        counts["failed"] = 0
    if counts["failed"] is not None and counts["passed"] is None:
        counts["passed"] = 0
    return TestCounts(**counts)
