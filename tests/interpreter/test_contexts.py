"""Contexts: apart from each other, with variables and a directory of their own, in several languages."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.interpreter.conftest import SANDBOX_VARIABLES, Interpreter, ends

SHOW = {
    "python": "import os; print(os.environ.get({name!r}, 'unset'))",
    "javascript": "console.log(process.env[{name!r}] ?? 'unset')",
    "bash": 'printf "%s\\n" "${{{name}-unset}}"',  # its kernel ends the last line where the cell does not
}


def show(language: str, name: str) -> str:
    return SHOW[language].format(name=name)


def test_contexts_keep_their_state_apart(interpreter: Interpreter) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: interpreter.context(), range(4)))
        list(pool.map(lambda pair: interpreter.run(f"v = {pair[0]}", context_id=pair[1]), enumerate(made)))
    assert [interpreter.value("v", context_id=context) for context in made] == ["0", "1", "2", "3"]
    assert interpreter.failure("v")["name"] == "NameError"
    for context in made:
        assert interpreter.client.delete(f"/contexts/{context}").json() is None


def test_contexts_are_listed_in_the_order_they_were_made(interpreter: Interpreter, tmp_path: Path) -> None:
    made = interpreter.client.post("/contexts", json={"cwd": str(tmp_path), "language": None}).json()
    assert made["language"] == "python" and made["cwd"] == str(tmp_path)
    assert interpreter.client.get("/contexts").json()[-1] == made
    assert interpreter.value("import os; os.getcwd()", context_id=made["id"]) == str(tmp_path)
    interpreter.client.delete(f"/contexts/{made['id']}")
    assert made not in interpreter.client.get("/contexts").json()


def test_a_restarted_context_has_forgotten(interpreter: Interpreter, context: str) -> None:
    interpreter.run("x = 1", context_id=context)
    assert interpreter.client.post(f"/contexts/{context}/restart").json() is None
    assert interpreter.failure("x", context_id=context)["value"] == "name 'x' is not defined"


def test_programs_that_cells_started_end_with_their_kernel(interpreter: Interpreter, context: str) -> None:
    code = "import subprocess; subprocess.Popen(['sleep', '1000']).pid"
    pid = int(interpreter.value(code, context_id=context))
    assert interpreter.client.post(f"/contexts/{context}/restart").status_code == 200
    ends(pid)


def test_a_cell_ends_when_its_context_is_restarted(interpreter: Interpreter, context: str) -> None:
    body = {"code": "print(1, flush=True)\nimport time; time.sleep(60)", "context_id": context}
    with interpreter.client.stream("POST", "/execute", json=body) as answer:
        lines = answer.iter_lines()
        next(line for line in lines if '"stdout"' in line)
        assert interpreter.client.post(f"/contexts/{context}/restart").status_code == 200
        assert json.loads(next(line for line in lines if '"error"' in line))["name"] == "ContextRestarted"
    assert interpreter.value("1 + 1", context_id=context) == "2"


def test_a_restart_does_not_wait_for_cells_that_wait(interpreter: Interpreter, context: str) -> None:
    slow = "print(1, flush=True)\nimport time; time.sleep(100)"
    with ThreadPoolExecutor(2) as pool:
        cells = [pool.submit(interpreter.run, slow, context_id=context) for _ in range(2)]
        began = time.monotonic()
        while not all(cell.done() for cell in cells) and time.monotonic() - began < 60:
            assert interpreter.client.post(f"/contexts/{context}/restart").status_code == 200
        assert time.monotonic() - began < 60
        for cell in cells:
            cell.result()


def test_a_context_can_be_removed_while_its_cell_is_being_interrupted(interpreter: Interpreter) -> None:
    context = interpreter.context()
    body = {"code": "print(1, flush=True)\nimport time; time.sleep(60)", "context_id": context}
    with interpreter.client.stream("POST", "/execute", json=body) as answer:
        next(line for line in answer.iter_lines() if '"stdout"' in line)
    assert interpreter.client.delete(f"/contexts/{context}").status_code == 200
    assert interpreter.client.get("/contexts").json()[-1]["id"] != context


@pytest.mark.parametrize("route", ["/contexts/nobody/restart", "/contexts/nobody"])
def test_unknown_contexts_are_not_found(interpreter: Interpreter, route: str) -> None:
    answer = interpreter.client.request("POST" if route.endswith("restart") else "DELETE", route)
    assert (answer.status_code, answer.text) == (404, "Context nobody not found")


def test_a_directory_that_does_not_exist_is_refused(interpreter: Interpreter) -> None:
    answer = interpreter.client.post("/contexts", json={"cwd": "/nowhere/at/all"})
    assert answer.status_code == 400 and "/nowhere/at/all" in answer.text


@pytest.mark.parametrize("language", sorted(SHOW))
def test_cells_have_the_variables_of_the_sandbox(interpreter: Interpreter, language: str) -> None:
    for name, value in SANDBOX_VARIABLES.items():
        assert interpreter.printed(show(language, name), language=language) == f"{value}\n"


@pytest.mark.parametrize("language", sorted(SHOW))
def test_variables_of_one_call_last_for_that_call(interpreter: Interpreter, language: str) -> None:
    given = {"FOO": "a 'b' \\ $c\tü", "PLAIN": "call"}
    for name, value in given.items():
        assert interpreter.printed(show(language, name), language=language, env_vars=given) == f"{value}\n"
    assert interpreter.printed(show(language, "FOO"), language=language) == "unset\n"
    assert interpreter.printed(show(language, "PLAIN"), language=language) == "sandbox\n"


@pytest.mark.parametrize("language", sorted(SHOW))
def test_variables_the_kernel_was_born_with_come_back_after_a_call(interpreter: Interpreter, language: str) -> None:
    assert interpreter.printed(show(language, "HOME"), language=language, env_vars={"HOME": "/"}) == "/\n"
    assert interpreter.printed(show(language, "HOME"), language=language) == f"{interpreter.workdir}\n"


def test_variables_of_a_call_leave_the_random_numbers_alone(interpreter: Interpreter, context: str) -> None:
    first = interpreter.value("import random; random.seed(1); random.random()", context_id=context)
    interpreter.run("random.seed(1)", context_id=context)
    assert interpreter.value("random.random()", context_id=context, env_vars={"A": "b"}) == first


def test_random_numbers_of_javascript_are_spread_evenly(interpreter: Interpreter) -> None:
    code = """
    const drawn = Array.from({ length: 100000 }, Math.random), tenths = Array(10).fill(0)
    for (const number of drawn) tenths[Math.floor(number * 10)]++
    new Set(drawn).size > 99990 && tenths.length === 10 && tenths.every((count) => Math.abs(count - 10000) < 1000)
    """
    assert interpreter.value(code, language="js") == "true"


def test_javascript_has_await_imports_and_require_and_prints_in_order(interpreter: Interpreter) -> None:
    code = """
    import { sep } from 'path'
    for (let i = 0; i < 2000; i++) console.log(i)
    console.error('bad')
    process.stdout.write(sep)
    await Promise.resolve(require('os').EOL.length)
    """
    lines = interpreter.run(code, language="js")
    printed = "".join(line["text"] for line in lines if line["type"] == "stdout")
    assert printed == "".join(f"{i}\n" for i in range(2000)) + "/"
    assert [line["text"] for line in lines if line["type"] == "stderr"] == ["bad\n"]
    assert [line["text"] for line in lines if line.get("is_main_result")] == ["1"]


def test_no_result_of_javascript_is_lost(interpreter: Interpreter) -> None:
    for number in range(50):
        assert interpreter.value(f"console.log('x'); await Promise.resolve({number})", language="js") == str(number)


def test_a_syntax_error_of_javascript_is_explained(interpreter: Interpreter) -> None:
    failure = interpreter.failure("let a = ;", language="js")
    assert (failure["name"], failure["value"]) == ("SyntaxError", "Expression expected")


def test_typescript_has_types(interpreter: Interpreter) -> None:
    assert interpreter.value("const n: number = 41; n + 1", language="ts") == "42"


def test_bash_reports_how_a_cell_ended(interpreter: Interpreter) -> None:
    assert interpreter.printed("for i in 1 2; do\n  echo $i\ndone", language="bash") == "1\n2\n"
    assert interpreter.failure("(exit 3)", language="bash")["value"] == "3"


def test_bash_prints_what_it_was_told(interpreter: Interpreter) -> None:
    context = interpreter.context(language="bash")
    interpreter.run("exit", context_id=context)  # the shell that comes after it prints the same
    printed = interpreter.printed("for i in {1..20000}; do printf '%0101d\\n' $i; done", context_id=context)
    assert printed == "".join(f"{i:0101}\n" for i in range(1, 20001))
    interpreter.client.delete(f"/contexts/{context}")


@pytest.mark.long
def test_twenty_contexts_at_once_keep_their_state_apart(interpreter: Interpreter) -> None:
    with ThreadPoolExecutor(20) as pool:
        made = list(pool.map(lambda _: interpreter.context(), range(20)))
        list(pool.map(lambda pair: interpreter.run(f"v = {pair[0]}", context_id=pair[1]), enumerate(made)))
        values = list(pool.map(lambda context: interpreter.value("v", context_id=context), made))
    assert values == [str(number) for number in range(20)]
    for context in made:
        interpreter.client.delete(f"/contexts/{context}")
