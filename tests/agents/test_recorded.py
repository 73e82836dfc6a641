"""Streams that the real agents printed (`tests/agents/recording.py`): each tells the same story, in entries of the same kinds."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.agents.reading import Read, read
from tests.agents.recording import COMMIT, FIXTURES, MISSING, RUN_TESTS

from sandlot.platform.agents.descriptions import load_agents
from sandlot.platform.core.tasks import EntryKind

AGENTS = {name: agent for name, agent in load_agents().items() if agent.install is not None}


def recorded(agent: str, name: str, exit_code: int = 0, errors: str = "") -> Read:
    task = AGENTS[agent].task
    assert task is not None
    return read(task.output, (FIXTURES / agent / f"{name}.jsonl").read_text().splitlines(), exit_code, errors)


def test_every_agent_with_a_model_was_recorded() -> None:
    assert {path.name for path in FIXTURES.iterdir()} == set(AGENTS)
    sizes = {path: path.stat().st_size for path in FIXTURES.rglob("*.jsonl")}
    assert max(sizes.values()) < 50_000


@pytest.mark.parametrize("agent", AGENTS)
def test_a_turn_is_told(agent: str) -> None:
    told = recorded(agent, "first")
    assert told.end.problem is None and told.end.question is None
    assert told.end.result == "It greets by name now."
    assert [entry.text for entry in told.of(EntryKind.MESSAGE)] == ["I read it first.", "It greets by name now."]
    assert (told.end.usage.input, told.end.usage.output) == (6000, 300)
    assert told.end.agent_session
    assert told.kinds[-1] == "result" and told.of(EntryKind.RESULT)[0].data["text"] == told.end.result
    if agent in ("claude", "codex"):
        assert [entry.text for entry in told.of(EntryKind.THINKING)] == ["The name is not used."]
    assert all(entry.raw for entry in told.of(EntryKind.MESSAGE))


@pytest.mark.parametrize("agent", AGENTS)
def test_an_edit_is_told_with_its_lines(agent: str) -> None:
    (edit,) = recorded(agent, "first").of(EntryKind.EDIT)
    assert edit.data["path"] == "greet.py", "as seen from the checkout"
    if agent == "codex":
        assert edit.data == {"path": "greet.py"}, "it does not tell more"
        return
    assert (edit.data["added"], edit.data["removed"]) == (1, 1)
    assert '-    return "hello from nobody"' in edit.data["diff"] or '-"hello from nobody"' in edit.data["diff"]
    (write,) = recorded(agent, "second").of(EntryKind.EDIT)
    assert (write.data["path"], write.data["added"], write.data["removed"]) == ("notes.txt", 2, 0)


@pytest.mark.parametrize("agent", AGENTS)
def test_commands_tests_and_commits_are_told(agent: str) -> None:
    told = recorded(agent, "first")
    (test,) = told.of(EntryKind.TEST)
    assert test.data["command"] == RUN_TESTS
    assert (test.data["passed"], test.data["failed"], test.data["exit_code"]) == (1, 0, 0)
    (git,) = told.of(EntryKind.GIT)
    assert git.data["action"] == "commit" and len(git.data["sha"]) >= 7
    ended = {entry.data["command"]: entry.data for entry in told.of(EntryKind.COMMAND) if not entry.data["running"]}
    assert ended[COMMIT]["exit_code"] == 0 and "fix: greet by name" in ended[COMMIT]["output"]
    assert ended[RUN_TESTS]["output"].rstrip().endswith("OK")
    begun = {entry.data["id"] for entry in told.of(EntryKind.COMMAND) if entry.data["running"]}
    assert begun <= {data["id"] for data in ended.values()}, "what begins also ends"


@pytest.mark.parametrize("agent", AGENTS)
def test_a_turn_that_goes_on_is_told_by_itself(agent: str) -> None:
    first, second = recorded(agent, "first"), recorded(agent, "second")
    assert second.end.agent_session == first.end.agent_session
    turns = 2 if agent == "codex" else 3
    assert (second.end.usage.input, second.end.usage.output) == (turns * 1200, turns * 60)
    assert second.end.result == "There is no missing.txt."
    failed = [entry.data for entry in second.of(EntryKind.COMMAND) if entry.data["command"] == MISSING][-1]
    assert "No such file" in failed["output"]
    if agent != "gemini":  # which does not tell exit codes
        assert failed["exit_code"] == 1


@pytest.mark.parametrize("agent", AGENTS)
def test_a_model_that_does_not_answer_is_a_problem(agent: str) -> None:
    told = recorded(agent, "broken", 1)
    assert told.end.problem and "the model is out of order" in told.end.problem
    assert told.kinds.count("error") >= 1 and "result" not in told.kinds


@pytest.mark.parametrize("agent", AGENTS)
def test_a_turn_that_was_cut_off_is_told_as_far_as_it_came(agent: str) -> None:
    task = AGENTS[agent].task
    assert task is not None
    lines = (FIXTURES / agent / "first.jsonl").read_text().splitlines()
    for keep in range(0, len(lines), 3):
        told = read(task.output, [*lines[:keep], lines[keep][:40]], None)
        assert told.end.problem and told.kinds[-1] == "error"
        running = [entry.data["id"] for entry in told.of(EntryKind.COMMAND) if entry.data["running"]]
        ended = [entry.data["id"] for entry in told.of(EntryKind.COMMAND) if not entry.data["running"]]
        assert set(running) <= set(ended)


def test_a_turn_that_was_cut_off_has_cost_something() -> None:
    lines = (FIXTURES / "claude" / "first.jsonl").read_text().splitlines()
    priced = [line.replace('"model":"scripted"', '"model":"claude-sonnet-4-5"') for line in lines[:-1]]
    usage = read("claude-stream", priced, 137).end.usage
    assert usage.input == 6000 and 100 < usage.output < 600 and usage.cost_usd


def test_fixtures_name_no_place_of_whoever_recorded_them() -> None:
    for path in FIXTURES.rglob("*.jsonl"):
        text = path.read_text()
        assert "/tmp/" not in text and "/work/" not in text and "/root" not in text, path
        assert Path(path).suffix == ".jsonl"
