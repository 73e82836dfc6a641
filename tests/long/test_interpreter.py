"""The code interpreter in its own template, in both runtimes: results, contexts, output, memory, pauses and every language."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
from e2b import Sandbox
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server
from tests.interpreter.cells import Cells

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
TEMPLATE = "code-interpreter-v1"
BUILD_S = 3000
PLOT = """
import pandas as pd, matplotlib.pyplot as plt
table = pd.DataFrame({"x": [1, 2, 3], "y": [4.0, 5.5, 7.25]})
plt.plot(table["x"], table["y"], label="rising"); plt.title("A line"); plt.xlabel("x"); plt.show()
table
"""
PICTURES = """
import plotly.express as px
from PIL import Image
from IPython.display import display
display(Image.new("RGB", (4, 4), "red"))
px.bar(x=["a", "b"], y=[1, 3])
"""
SUMS = {
    "python": "6 * 7",
    "javascript": "await Promise.resolve(6 * 7)",
    "typescript": "const n: number = 6 * 7; n",
    "r": "6 * 7",
    "java": "int n = 6; n * 7",
}


@pytest.fixture(scope="module", params=["container", "gvisor"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with in_pristine(tmp_path_factory, str(request.param)) as server:
        server.cli("template", "build", "--stock", TEMPLATE, timeout=BUILD_S)
        yield server


@pytest.fixture(scope="module")
def sandbox(server: Server) -> Iterator[Sandbox]:
    made = server.create(TEMPLATE, timeout=3000)
    yield made
    made.kill()


@pytest.fixture
def cells(sandbox: Sandbox) -> Iterator[Cells]:
    with cells_of(sandbox) as cells:
        yield cells


@contextmanager
def cells_of(sandbox: Sandbox) -> Iterator[Cells]:
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49999"}
    headers["X-Access-Token"] = sandbox.connection_config.sandbox_headers["X-Access-Token"]
    base = sandbox.connection_config.get_sandbox_url(sandbox.sandbox_id, sandbox.sandbox_domain)
    with httpx.Client(base_url=base, headers=headers, timeout=300, trust_env=False) as client:
        yield Cells(client)


def test_a_plot_brings_its_picture_and_its_data(cells: Cells) -> None:
    plot, table = cells.results(PLOT)
    assert plot["png"] and plot["is_main_result"] is False
    assert (plot["chart"]["type"], plot["chart"]["title"]) == ("line", "A line")
    assert plot["chart"]["elements"] == [{"label": "rising", "points": [[1, 4.0], [2, 5.5], [3, 7.25]]}]
    assert table["data"] == {"x": [1, 2, 3], "y": [4.0, 5.5, 7.25]} and table["is_main_result"] is True


def test_pictures_and_plotly_figures_are_results(cells: Cells) -> None:
    picture, figure = cells.results(PICTURES)
    assert picture["png"]
    (mime,) = [name for name in figure["extra"] if "plotly" in name]
    assert figure["extra"][mime]["data"][0]["type"] == "bar"


@pytest.mark.parametrize("language", sorted(SUMS))
def test_every_language_of_the_template_runs(cells: Cells, language: str) -> None:
    (shown,) = cells.results(SUMS[language], language=language)  # R displays it, the others return it
    assert shown["text"].removeprefix("[1] ") == "42"


def test_bash_runs(cells: Cells) -> None:
    assert cells.printed("echo $((6 * 7))", language="bash") == "42\n"


def test_java_loses_no_output_and_explains_its_errors(cells: Cells) -> None:
    code = 'for (int i = 0; i < 100_000; i++) System.out.println(i + " " + "x".repeat(94));'
    assert cells.printed(code, language="java") == "".join(f"{i} {'x' * 94}\n" for i in range(100_000))
    failure = cells.failure('throw new IllegalStateException("why");', language="java")
    assert (failure["name"], failure["value"]) == ("IllegalStateException", "why")
    assert "\x1b" not in failure["traceback"]
    failure = cells.failure("int n = ;", language="java")
    assert (failure["name"], failure["value"]) == ("CompilationException", "illegal start of expression")


def test_a_java_cell_ends_when_its_client_leaves(cells: Cells) -> None:
    body = {"code": 'System.out.println("on"); Thread.sleep(300_000);', "language": "java"}
    with cells.client.stream("POST", "/execute", json=body) as answer:
        next(line for line in answer.iter_lines() if '"stdout"' in line)
    assert cells.value("1 + 1", language="java") == "2"


def test_twenty_contexts_at_once_keep_their_state_apart(server: Server) -> None:
    sandbox = server.create(TEMPLATE, timeout=900)
    with cells_of(sandbox) as cells, ThreadPoolExecutor(20) as pool:
        made = list(pool.map(lambda _: cells.context(), range(20)))
        list(pool.map(lambda pair: cells.run(f"v = {pair[0]}", context_id=pair[1]), enumerate(made)))
        assert list(pool.map(lambda one: cells.value("v", context_id=one), made)) == [str(n) for n in range(20)]
    sandbox.kill()


def test_ten_megabytes_arrive_whole(cells: Cells) -> None:
    printed = cells.printed("for i in range(100_000): print(i, 'x' * 94)")
    assert printed == "".join(f"{i} {'x' * 94}\n" for i in range(100_000))


def test_a_cell_that_takes_all_memory_says_so_and_the_next_one_works(cells: Cells) -> None:
    context = cells.context()
    failure = cells.failure("b = bytearray(3 << 30)\nb[::4096] = b'1' * len(b[::4096])", context_id=context)
    assert failure["name"] == "OutOfMemory", failure
    assert cells.value("1 + 1", context_id=context) == "2"
    assert cells.value("1 + 1") == "2"


def test_variables_of_one_call_last_for_that_call(cells: Cells) -> None:
    code = "import os; os.environ.get('OF_ONE_CALL', 'unset')"
    assert cells.value(code, env_vars={"OF_ONE_CALL": "set"}) == "set"
    assert cells.value(code) == "unset"


def test_sandboxes_that_began_alike_draw_different_numbers(server: Server) -> None:
    codes = {"python": "import random; random.random()", "javascript": "Math.random()"}
    drawn = []
    for _ in range(2):
        sandbox = server.create(TEMPLATE, timeout=900)
        with cells_of(sandbox) as cells:
            drawn += [cells.value(code, language=language) for language, code in codes.items()]
        sandbox.kill()
    assert len(set(drawn)) == 4


def test_a_pause_keeps_the_variables_of_contexts(server: Server) -> None:
    sandbox = server.create(TEMPLATE, timeout=900)
    with cells_of(sandbox) as cells:
        context = cells.context()
        cells.run("kept = [1, 2]", context_id=context)
        cells.run("var kept = 'js'", language="js")
    sandbox.pause()
    sandbox.connect(timeout=900)
    with cells_of(sandbox) as cells:
        assert cells.value("kept", context_id=context) == "[1, 2]"
        assert cells.value("kept", language="js") == "js"
    sandbox.kill()
