"""What agents print becomes entries of a timeline, whatever they print."""

from __future__ import annotations

import json
import random
from typing import Any, get_args

import pytest
from tests.agents.reading import read

from sandlot.platform.agents.descriptions import Output, load_agents
from sandlot.platform.agents.readers.lines import MOST_LINE
from sandlot.platform.agents.streams import stream_reader
from sandlot.platform.core.errors import ConfigurationError
from sandlot.platform.core.tasks import EntryKind

STREAMS = [name for name in get_args(Output) if name.endswith("-stream")]
HEADER = json.dumps({"type": "sandlot.turn", "directory": "/home/user/app", "command": "make all", "session": "s-1"})


def test_every_agent_that_works_on_tasks_has_a_reader() -> None:
    for agent in load_agents().values():
        assert agent.task is not None, agent.id
        assert stream_reader(agent.task.output)
    with pytest.raises(ConfigurationError, match="claude-json"):
        stream_reader("claude-json")


def test_a_command_is_one_entry_whose_output_comes_in_pieces() -> None:
    told = read("text", [HEADER, "one\n", "two\n"], 0)
    commands = told.of(EntryKind.COMMAND)
    assert {entry.data["id"] for entry in commands} == {"command"}
    assert [entry.data.get("chunk") for entry in commands] == [None, "one\n", "two\n", None]
    assert commands[0].data == {"id": "command", "command": "make all", "running": True}
    assert commands[-1].data["output"] == "one\ntwo\n" and commands[-1].data["exit_code"] == 0
    assert told.end.result == "one\ntwo" and told.end.problem is None and told.end.agent_session is None


def test_a_command_that_fails_is_a_problem_with_its_last_words() -> None:
    told = read("text", [HEADER, "no such file\n"], 2)
    assert told.end.problem == "the agent ended with exit code 2: no such file"
    assert told.kinds[-1] == "error" and told.of(EntryKind.COMMAND)[-1].data["exit_code"] == 2
    lost = read("text", [HEADER, "half"], None)
    assert lost.end.problem and "lost" in lost.end.problem
    assert lost.of(EntryKind.COMMAND)[-1].data["running"] is False


def test_much_output_does_not_fill_the_timeline() -> None:
    told = read("text", [HEADER, *(f"line {n}\n" for n in range(100_000))])
    assert len(told.entries) < 600
    assert told.of(EntryKind.COMMAND)[-1].data["output"].endswith("line 99999\n")
    text = "".join(entry.data.get("chunk", "") for entry in told.of(EntryKind.COMMAND))
    assert "line 12345\n" in text


def test_a_command_that_runs_tests_or_commits_is_told_as_such() -> None:
    def bash(command: str, output: str, failed: bool = False) -> list[str]:
        use = {"type": "tool_use", "id": command, "name": "Bash", "input": {"command": command}}
        back = {"type": "tool_result", "tool_use_id": command, "content": output, "is_error": failed}
        return [
            json.dumps({"type": "assistant", "message": {"content": [use]}}),
            json.dumps({"type": "user", "message": {"content": [back]}}),
        ]

    told = read(
        "claude-stream",
        [
            *bash("cd app && pytest -q", "Exit code 1\n2 failed, 3 passed in 0.1s", failed=True),
            *bash("git commit -m x", "[task-1 1a2b3c4] x\n 1 file changed"),
            *bash("cat pytest.ini", "x"),
        ],
        1,
    )
    (test,) = told.of(EntryKind.TEST)
    assert (test.data["passed"], test.data["failed"], test.data["exit_code"]) == (3, 2, 1)
    (git,) = told.of(EntryKind.GIT)
    assert git.data["action"] == "commit" and git.data["sha"] == "1a2b3c4"
    assert [entry.data["running"] for entry in told.of(EntryKind.COMMAND)] == [True, False] * 3


def test_a_question_at_the_end_is_found() -> None:
    result = {"type": "result", "result": "I looked.\n\n**QUESTION:** Which one?\n- red\n- blue\n", "is_error": False}
    told = read("claude-stream", [json.dumps(result)])
    assert told.end.question == "Which one?"
    assert told.of(EntryKind.QUESTION)[0].data == {"text": "Which one?", "options": ["red", "blue"]}
    calm = {"type": "result", "result": "No QUESTION: is open.", "is_error": False}
    assert read("claude-stream", [json.dumps(calm)]).end.question is None


HOSTILE: list[str] = [
    "",
    "no JSON",
    "{",
    "{" * 100_000,
    '{"a":' * 5000 + "1" + "}" * 5000,
    "[" * 200_000,
    "[]",
    "null",
    '"x"',
    "{}",
    '{"type":null}',
    '{"type":{"type":[]}}',
    '{"type":"assistant","message":"x"}',
    '{"type":"assistant","message":{"content":[null,1,"x",{"type":"tool_use"},{"type":"text","text":{}}]}}',
    '{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":["x"]}]}}',
    '{"type":"result","usage":{"input_tokens":-5,"output_tokens":1e400},"total_cost_usd":"free","result":[1]}',
    '{"type":"result","num_turns":NaN,"total_cost_usd":-Infinity,"session_id":7}',
    '{"type":"item.completed","item":{"type":"command_execution","exit_code":"x","command":[1]}}',
    '{"type":"turn.completed","usage":[]}',
    '{"type":"assistant","message":{"content":[{"type":"text","text":"\\ud800 lone"}]}}',
    "\udcff\udcfe broken bytes",
    '{"type":"x' + "\0" + '"}',
    '{"type":"text","text":"' + "a" * (MOST_LINE + 10) + '"}',
    "a" * (3 << 20),
    '{"n":' + "9" * 10_000 + "}",
]


@pytest.mark.parametrize("output", [*STREAMS, "text"])
def test_no_line_makes_a_reader_fail(output: str) -> None:
    told = read(output, [HEADER, *HOSTILE], 1, "\udcff" * 100_000)
    for entry in told.entries:
        said = json.dumps({"text": entry.text, "data": entry.data, "raw": entry.raw}, allow_nan=False)
        assert len(said) < 500_000
        said.encode()
        entry.text.encode()
    assert told.end.problem
    assert told.end.usage.input >= 0


@pytest.mark.parametrize("output", STREAMS)
def test_events_of_any_shape_are_read(output: str) -> None:
    """The names that readers look for, with values that they do not expect."""
    chance = random.Random(7)
    names = [
        "type",
        "subtype",
        "message",
        "content",
        "text",
        "thinking",
        "id",
        "name",
        "input",
        "command",
        "tool_use_id",
        "is_error",
        "result",
        "usage",
        "tool_use_result",
        "structuredPatch",
        "lines",
        "item",
        "items",
        "changes",
        "path",
        "kind",
        "aggregated_output",
        "exit_code",
        "part",
        "tool",
        "state",
        "output",
        "metadata",
        "tokens",
        "data",
        "toolCallId",
        "toolName",
        "arguments",
        "success",
        "tool_id",
        "parameters",
        "status",
        "stats",
        "role",
        "delta",
        "error",
        "sessionID",
        "cost",
        "reason",
    ]
    kinds = [
        "system",
        "assistant",
        "user",
        "result",
        "tool_use",
        "tool_result",
        "text",
        "thinking",
        "item.started",
        "item.completed",
        "turn.completed",
        "turn.failed",
        "command_execution",
        "file_change",
        "error",
        "message",
        "init",
        "step_finish",
        "reasoning",
        "tool.execution_start",
        "tool.execution_complete",
        "assistant.message",
        "agent_message",
        "mcp_tool_call",
        "todo_list",
        "Bash",
        "Edit",
        "Write",
        "bash",
        "edit",
        "replace",
        "AskUserQuestion",
    ]

    def value(depth: int) -> Any:
        choice = chance.randrange(9 if depth else 6)
        plain = [None, True, chance.choice([-1, 0, 3, 10**30, 1.5]), chance.choice(kinds), "x" * 50, "init"]
        if choice < 6:
            return plain[choice]
        if choice == 6:
            return [value(depth - 1) for _ in range(3)]
        return event(depth - 1)

    def event(depth: int) -> dict[str, Any]:
        made = {name: value(depth) for name in chance.sample(names, 8)}
        return {**made, "type": chance.choice(kinds), "id": "x", "callID": "x"} if depth else made

    lines = [json.dumps(event(4)) for _ in range(400)]
    first, again = read(output, lines), read(output, lines)
    assert first == again, "the same lines give the same entries"
    json.dumps([entry.data for entry in first.entries], allow_nan=False)
