"""The Screen tab of the console in real Chromium, before a real desktop under gVisor."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.console_web.conftest import Spec, chromium, spec  # noqa: F401 - fixtures
from tests.e2e.conftest import in_pristine
from tests.e2e.server import Server, until
from tests.long.test_desktop import BUILD_S, TEMPLATE, run, titles

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
NOTE = "/home/user/note.txt"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with in_pristine(tmp_path_factory, "gvisor") as server:
        server.cli("template", "build", "--stock", TEMPLATE, timeout=BUILD_S)
        yield server


def test_a_person_looks_on_and_takes_control(engine: Server, spec: Spec) -> None:  # noqa: F811
    desktop, plain = engine.create(TEMPLATE), engine.create()
    try:
        desktop.files.write(NOTE, "")
        desktop.commands.run(f"mousepad {NOTE}", background=True, timeout=0)
        until(lambda: "note.txt" in titles(desktop), what="the editor's window")
        run(desktop, "wmctrl -r note.txt -b add,maximized_vert,maximized_horz")

        def pointer() -> list[int]:
            words = run(desktop, "xdotool getmouselocation").split()
            return [int(word.partition(":")[2]) for word in words[:2]]

        spec(
            "screen",
            {"pointer": pointer, "text": lambda: desktop.files.read(NOTE)},
            desktop=desktop.sandbox_id,
            plain=plain.sandbox_id,
            picture=os.environ.get("SCREEN_PICTURE"),
        )
        assert run(desktop, "pgrep -x screen-vnc || echo none") == "none\n", "viewers that left leave nothing behind"
    finally:
        desktop.kill()
        plain.kill()
