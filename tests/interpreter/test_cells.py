"""What cells show, and what becomes of them when a client leaves or a kernel dies."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest
from tests.interpreter.conftest import Interpreter, ends


def test_a_cell_is_a_stream_of_its_number_its_result_and_its_end(interpreter: Interpreter, context: str) -> None:
    count, result = interpreter.run("'a' + 'b'", context_id=context)
    assert count == {"type": "number_of_executions", "execution_count": 1}
    assert result == {"type": "result", "text": "ab", "is_main_result": True}


def test_output_carries_the_time_it_was_printed_at(interpreter: Interpreter) -> None:
    lines = interpreter.run("import sys; print('out'); print('err', file=sys.stderr)")
    shown = {line["type"]: line for line in lines}
    assert (shown["stdout"]["text"], shown["stderr"]["text"]) == ("out\n", "err\n")
    assert abs(shown["stdout"]["timestamp"] / 1e9 - time.time()) < 60


def test_output_arrives_while_the_cell_runs(interpreter: Interpreter, context: str) -> None:
    code = "import time\nprint('first', flush=True)\ntime.sleep(300)"
    with interpreter.client.stream("POST", "/execute", json={"code": code, "context_id": context}) as answer:
        for line in answer.iter_lines():
            if json.loads(line).get("text") == "first\n":
                return
    raise AssertionError("the cell ended without a word")


def test_an_error_has_a_name_a_value_and_a_traceback_without_colours(interpreter: Interpreter) -> None:
    failure = interpreter.failure("def f():\n    return {}['missing']\nf()")
    assert (failure["name"], failure["value"]) == ("KeyError", "'missing'")
    assert "return {}['missing']" in failure["traceback"] and "\x1b" not in failure["traceback"]


def test_what_is_displayed_is_told_from_the_result(interpreter: Interpreter) -> None:
    code = "from IPython.display import display, HTML\ndisplay(HTML('<b>x</b>'))\n[1, float('nan')]"
    _, displayed, main = interpreter.run(code)
    assert displayed["html"] == "<b>x</b>" and displayed["is_main_result"] is False
    assert main["json"] == [1, None] and main["is_main_result"] is True


def test_unknown_forms_of_a_result_are_kept_as_extra(interpreter: Interpreter) -> None:
    code = "from IPython.display import display\ndisplay({'text/latex': 'x', 'application/x-own': 1}, raw=True)"
    _, line = interpreter.run(code)
    assert (line["latex"], line["extra"]) == ("x", {"application/x-own": 1})


def test_a_table_brings_its_data(interpreter: Interpreter) -> None:
    code = "import pandas as pd\npd.DataFrame({'n': [1.5, None], 't': pd.to_datetime(['2020-01-02', None]), 's': ['a', 'b']})"
    (line,) = [line for line in interpreter.run(code) if line["type"] == "result"]
    assert line["data"] == {"n": [1.5, None], "t": ["2020-01-02T00:00:00", None], "s": ["a", "b"]}
    assert "<table" in line["html"]


def test_a_table_may_hold_anything(interpreter: Interpreter) -> None:
    code = """
import numpy as np, pandas as pd
class Odd:
    def tolist(self): raise RuntimeError
table = pd.DataFrame([[np.array([1.0, np.nan]), {"k": (np.int64(2),)}]], columns=["a", "b"])
display(table, pd.DataFrame([[1, 2]], columns=["a", "a"]), pd.DataFrame({"o": [Odd()]}))"""
    lines = interpreter.run(code)
    vectors, twice, odd = (line for line in lines if line["type"] == "result")
    assert vectors["data"] == {"a": [[1.0, None]], "b": [{"k": [2]}]}
    assert twice["data"] == {"a": [2]} and "data" not in odd and "<table" in odd["html"]
    assert not [line for line in lines if line["type"] in ("stderr", "error")]


def test_a_picture_that_is_saved_is_shown(interpreter: Interpreter, context: str, tmp_path: Path) -> None:
    code = f"from PIL import Image\nImage.new('RGB', (2, 2)).save({str(tmp_path / 'x.png')!r})"
    (line,) = [line for line in interpreter.run(code, context_id=context) if line["type"] == "result"]
    assert line["png"] and (tmp_path / "x.png").exists()


def test_cells_see_no_name_of_ours(interpreter: Interpreter, context: str) -> None:
    names = interpreter.value("[n for n in dir() if not n.startswith('_')]", context_id=context)
    assert set(eval(names)) <= {"In", "Out", "exit", "quit", "get_ipython", "open"}


def test_ten_megabytes_arrive_whole(interpreter: Interpreter, context: str) -> None:
    printed = interpreter.printed("for i in range(100_000): print(i, 'x' * 94)", context_id=context)
    assert printed == "".join(f"{i} {'x' * 94}\n" for i in range(100_000))


def test_many_small_messages_arrive_whole(interpreter: Interpreter, context: str) -> None:
    printed = interpreter.printed("for i in range(4000): print(i, flush=True)", context_id=context)
    assert printed == "".join(f"{i}\n" for i in range(4000))


@pytest.mark.long
def test_a_slow_reader_makes_the_kernel_wait_and_misses_nothing(interpreter: Interpreter, context: str) -> None:
    code = "for i in range(600_000): print('y' * 99)"  # 60 MB, far more than may wait
    size, largest = 0, 0
    with interpreter.client.stream("POST", "/execute", json={"code": code, "context_id": context}) as answer:
        for line in answer.iter_lines():
            size += len(json.loads(line).get("text", ""))
            if size < 2_000_000:
                time.sleep(0.1)
            largest = max(largest, resident_mb(interpreter.process.pid))
    assert size == 60_000_000
    assert largest < 250


def resident_mb(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 >> 20


def leave(interpreter: Interpreter, code: str, context: str) -> None:
    """Run a cell, wait for its first output, and go away."""
    with interpreter.client.stream("POST", "/execute", json={"code": code, "context_id": context}) as answer:
        for line in answer.iter_lines():
            if json.loads(line)["type"] == "stdout":
                return


def test_a_cell_is_interrupted_when_its_client_leaves(interpreter: Interpreter, context: str) -> None:
    leave(interpreter, "kept = 5\nimport time\nprint('on', flush=True)\ntime.sleep(300)", context)
    assert interpreter.value("kept", context_id=context) == "5"


def test_a_cell_that_ignores_interrupts_loses_its_kernel(interpreter: Interpreter, context: str) -> None:
    stubborn = "import signal, time\nsignal.signal(2, signal.SIG_IGN)\nprint('on', flush=True)\ntime.sleep(300)"
    leave(interpreter, stubborn, context)
    assert interpreter.value("1 + 1", context_id=context) == "2"


def test_a_waiting_cell_is_dropped_when_its_client_leaves(interpreter: Interpreter, context: str) -> None:
    code = "import time\nprint('on', flush=True)\ntime.sleep(4)"
    with interpreter.client.stream("POST", "/execute", json={"code": code, "context_id": context}) as answer:
        lines = answer.iter_lines()
        while json.loads(next(lines))["type"] != "stdout":
            pass
        with pytest.raises(httpx.ReadTimeout):
            body = {"code": "never = 1", "context_id": context}
            httpx.post(f"{interpreter.client.base_url}/execute", json=body, timeout=1.5)
        for _ in lines:
            pass
    assert interpreter.failure("never", context_id=context)["name"] == "NameError"


def test_a_kernel_that_dies_is_reported_and_comes_back(interpreter: Interpreter, context: str) -> None:
    failure = interpreter.failure(
        "print('last words', flush=True)\nimport os; os.kill(os.getpid(), 11)", context_id=context
    )
    assert failure["name"] == "KernelDied" and "SIGSEGV" in failure["value"]
    assert interpreter.value("1 + 1", context_id=context) == "2"


def test_a_kernel_that_dies_between_cells_comes_back(interpreter: Interpreter, context: str) -> None:
    pid = int(interpreter.value("import os; os.getpid()", context_id=context))
    assert pid > 1
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists():  # its first thread ends before the others, and only then can anybody know
        assert time.monotonic() < deadline, f"{pid} lives on"
        time.sleep(0.01)
    assert interpreter.value("1 + 1", context_id=context) == "2"


def test_kernels_end_with_their_server(another: Callable[[], AbstractContextManager[Interpreter]]) -> None:
    with another() as interpreter:
        pid = int(interpreter.value("import os; os.getpid()"))
        assert Path(f"/proc/{pid}").exists()
    ends(pid)


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"code": "1", "context_id": "x", "language": "python"}, 400, "Only one of context_id or language"),
        ({"code": "1", "context_id": "nobody"}, 404, "Context nobody not found"),
        ({"code": "1", "language": "cobol"}, 400, "'cobol' is not installed"),
        ({"code": 1}, 400, "`code` must be given"),
        ({"code": "1", "env_vars": []}, 200, ""),
        ({"code": "1", "env_vars": ["A"]}, 400, "`env_vars` must be an object"),
        ([], 400, "must be a JSON object"),
    ],
)
def test_requests_that_make_no_sense_are_refused(
    interpreter: Interpreter, body: object, status: int, text: str
) -> None:
    answer = interpreter.client.post("/execute", json=body)
    assert (answer.status_code, text in answer.text) == (status, True), answer.text


@pytest.mark.long
def test_a_silent_cell_is_kept_alive(interpreter: Interpreter, context: str) -> None:
    answer = interpreter.client.post("/execute", json={"code": "import time; time.sleep(11)", "context_id": context})
    assert answer.text.count('"keepalive"') == 2
