"""Records what the real agents print: two turns of one conversation, and an end by error, with a scripted model. Run it to renew the fixtures.

`python -m tests.agents.recording PROGRAMS [AGENT ...]`, where PROGRAMS is a directory with the agents' programs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.agents.clis import DESCRIBED, KEY, MODEL, QUIET, bare_environment
from tests.agents.running import NOWHERE
from tests.models.script import Script, parse
from tests.models.server import ScriptedModel

from sandlot.platform.agents.reading import TurnEnd
from sandlot.platform.agents.streams import stream_reader
from sandlot.platform.agents.turns import Turn, interrupt_line, turn_files, turn_script
from sandlot.platform.core.tasks import TokenUsage

FIXTURES = Path(__file__).with_name("streams")
HOME = "/home/user"  # what stands in the fixtures for the directory that was used
FIX, AGAIN, BROKEN = (
    "Fix the greeting.",
    "Say it louder, and look at what is missing.",
    "Use a model that is out of order.",
)
DELTA = '"type":"assistant.tool_call_delta"'  # Copilot's pieces of inputs: many, and nobody reads them
SECONDS = 180
HERE = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
GREETING = 'def greeting(name):\n    return "hello from nobody"\n'
TESTS = """import unittest
from greet import greeting


class GreetingTest(unittest.TestCase):
    def test_it_greets_in_the_name_of_somebody(self):
        self.assertEqual(greeting("ada"), "hello from ada")


if __name__ == "__main__":
    unittest.main()
"""
RUN_TESTS = "python3 -m unittest test_greet.py"
COMMIT = "git add -A && git commit -q -m 'fix: greet by name' && git log --oneline -1"
MISSING = "cat missing.txt"
CODEX_PATCH = """*** Begin Patch
*** Update File: greet.py
@@
 def greeting(name):
-    return "hello from nobody"
+    return f"hello from {name}"
*** End Patch
"""


@dataclass(frozen=True)
class Hands:
    """What an agent's own tools are called."""

    read: Callable[[str], Mapping[str, Any]]
    edit: Callable[[str], Mapping[str, Any]]
    run: Callable[[str], Mapping[str, Any]]
    write: Callable[[str], Mapping[str, Any]] | None = None


OLD, NEW = '"hello from nobody"', 'f"hello from {name}"'
HANDS = {
    "claude": Hands(
        read=lambda path: {"tool": "Read", "input": {"file_path": path}},
        edit=lambda path: {"tool": "Edit", "input": {"file_path": path, "old_string": OLD, "new_string": NEW}},
        run=lambda line: {"tool": "Bash", "input": {"command": line, "description": "Do it"}},
        write=lambda path: {"tool": "Write", "input": {"file_path": path, "content": "one\ntwo\n"}},
    ),
    "codex": Hands(
        read=lambda path: {"tool": "exec_command", "input": {"cmd": f"cat {path}"}},
        edit=lambda _: {"tool": "exec_command", "input": {"cmd": f"apply_patch <<'EOF'\n{CODEX_PATCH}EOF"}},
        run=lambda line: {"tool": "exec_command", "input": {"cmd": line}},
    ),
    "gemini": Hands(
        read=lambda path: {"tool": "read_file", "input": {"file_path": path}},
        edit=lambda path: {
            "tool": "replace",
            "input": {"file_path": path, "instruction": "Greet", "old_string": OLD, "new_string": NEW},
        },
        run=lambda line: {"tool": "run_shell_command", "input": {"command": line}},
        write=lambda path: {"tool": "write_file", "input": {"file_path": path, "content": "one\ntwo\n"}},
    ),
    "opencode": Hands(
        read=lambda path: {"tool": "read", "input": {"filePath": path}},
        edit=lambda path: {"tool": "edit", "input": {"filePath": path, "oldString": OLD, "newString": NEW}},
        run=lambda line: {"tool": "bash", "input": {"command": line, "description": "Do it"}},
        write=lambda path: {"tool": "write", "input": {"filePath": path, "content": "one\ntwo\n"}},
    ),
    "copilot": Hands(
        read=lambda path: {"tool": "view", "input": {"path": path}},
        edit=lambda path: {"tool": "edit", "input": {"path": path, "old_str": OLD, "new_str": NEW}},
        run=lambda line: {"tool": "bash", "input": {"command": line, "description": "Do it"}},
        write=lambda path: {"tool": "create", "input": {"path": path, "file_text": "one\ntwo\n"}},
    ),
}


def scenes(agent: str, directory: str) -> Script:
    """Two prompts and what the model does about them; and one that it does not answer."""
    hands = HANDS[agent]
    greet, notes = f"{directory}/greet.py", f"{directory}/notes.txt"
    counted = {"input_tokens": 1200, "output_tokens": 60}
    first = [
        {"think": "The name is not used.", "say": "I read it first.", "calls": [hands.read(greet)], **counted},
        {"expect": "hello from nobody", "calls": [hands.edit(greet)], **counted},
        {"calls": [hands.run(RUN_TESTS)], **counted},
        {"expect": "OK", "calls": [hands.run(COMMIT)], **counted},
        {"expect": "fix: greet by name", "say": "It greets by name now.", **counted},
    ]
    wrote = [{"calls": [hands.write(notes)], **counted}] if hands.write is not None else []
    second = [{"calls": [hands.run(MISSING)], **counted}, *wrote, {"say": "There is no missing.txt.", **counted}]
    broken = [{"fail": {"status": 400, "times": 99, "message": "the model is out of order"}}]
    prompts = ((FIX, first), (AGAIN, second), (BROKEN, broken))
    return parse({"scenes": [{"when": re.escape(prompt), "turns": turns} for prompt, turns in prompts]})


@dataclass(frozen=True)
class Recorded:
    """One turn as it came: its lines, what it complained about, and its exit code."""

    lines: list[str]
    errors: str
    exit_code: int


@dataclass(frozen=True)
class Stage:
    """A home directory with a checkout, and a model of ours."""

    home: Path
    programs: Path
    model: ScriptedModel

    @property
    def work(self) -> Path:
        return self.home / "app"

    def prepare(self) -> None:
        self.work.mkdir()
        (self.work / "greet.py").write_text(GREETING)
        (self.work / "test_greet.py").write_text(TESTS)
        (self.work / ".gitignore").write_text("__pycache__\n")
        git = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
        for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "feat: greet"]):
            subprocess.run([*git, *words], cwd=self.work, check=True)
        for name, value in (("user.name", "Ada"), ("user.email", "ada@example.org")):
            subprocess.run(["git", "config", name, value], cwd=self.work, check=True)

    def turn(self, agent: str, number: int, prompt: str, before: TurnEnd | None = None) -> Turn:
        described = DESCRIBED[agent]
        pointed = described.pointed_at(self.model.url, key=KEY, model=MODEL, provider=MODEL)
        return Turn(
            task=f"{agent}-task",
            attempt=1,
            number=number,
            prompt=prompt,
            directory=str(self.work),
            resume=before.agent_session if before is not None else None,
            spent=before.usage if before is not None else TokenUsage(),
            model=f"{MODEL}/{MODEL}" if agent == "opencode" else MODEL,
            environment={**QUIET, **described.offline, **pointed.environment, **HERE},
            files=pointed.files,
            home=str(self.home),
        )

    def environment(self) -> dict[str, str]:
        proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), NOWHERE)
        path = f"{self.programs}:{os.environ['PATH']}"
        return {**bare_environment(), **proxies, **HERE, "HOME": str(self.home), "PATH": path}

    def shell(self, line: str) -> str:
        env = self.environment()
        done = subprocess.run(["sh", "-c", line], env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, agent: str, turn: Turn) -> None:
        script = turn_script(DESCRIBED[agent], turn)
        for path, data in script.files.items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(data)
        self.shell(script.start)

    def record(self, agent: str, turn: Turn) -> Recorded:
        self.start(agent, turn)
        files = turn_files(turn)
        deadline = time.monotonic() + SECONDS
        while not Path(files.exit_code).exists() or not Path(files.exit_code).stat().st_size:
            if time.monotonic() > deadline:
                self.shell(interrupt_line(DESCRIBED[agent], turn))
            time.sleep(0.1)
        lines = Path(files.output).read_text().splitlines()
        return Recorded(lines, Path(files.errors).read_text(), int(Path(files.exit_code).read_text()))


def end_of(agent: str, recorded: Recorded) -> TurnEnd:
    task = DESCRIBED[agent].task
    assert task is not None
    reader = stream_reader(task.output)
    for line in recorded.lines:
        reader.feed(line)
    return reader.end(recorded.exit_code, recorded.errors)


def main() -> None:
    programs, *agents = sys.argv[1:]
    for agent in agents or HANDS:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home, ScriptedModel(parse([])) as model:
            stage = Stage(Path(home), Path(programs).resolve(), model)
            stage.prepare()
            model.replace(scenes(agent, str(stage.work)))
            first = stage.record(agent, stage.turn(agent, 1, FIX))
            keep(agent, "first", first, home)
            print(agent, "first", first.exit_code, model.problems, first.errors[-300:])
            second = stage.record(agent, stage.turn(agent, 2, AGAIN, end_of(agent, first)))
            keep(agent, "second", second, home)
            print(agent, "second", second.exit_code, model.problems, second.errors[-300:])
            print(agent, "prompts known in the second turn:", FIX in str(model.asked[-1].messages))
            broken = stage.record(agent, stage.turn(agent, 3, BROKEN))
            keep(agent, "broken", broken, home)
            print(agent, "broken", broken.exit_code, broken.errors[-300:])


def keep(agent: str, name: str, recorded: Recorded, home: str) -> None:
    path = FIXTURES / agent / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [line for line in recorded.lines if DELTA not in line]
    path.write_text("\n".join(lines).replace(home, HOME) + "\n")


if __name__ == "__main__":
    main()
