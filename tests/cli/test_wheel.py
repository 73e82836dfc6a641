"""The wheel: built, installed without its source tree, and started like any other Sandlot."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import ROOT, environment
from tests.interpreter.environments import python_with

pytestmark = pytest.mark.timeout(300)
BUILDER = Path(__file__).with_name("wheel.lock")
SOURCE = ROOT / "src" / "sandlot"


def run(*argv: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    variables = environment(**more)
    del variables["PYTHONPATH"]  # what runs must come out of the wheel
    return subprocess.run(argv, env=variables, cwd="/", input="", capture_output=True, text=True, timeout=240)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("dist")
    builder = [
        str(python_with(BUILDER, name="hatchling")),
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel",
        "-d",
        str(target),
    ]
    done = subprocess.run(builder, cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel in it; dependencies are borrowed from the one that runs the tests."""
    home = tmp_path_factory.mktemp("installed")
    assert run(sys.executable, "-m", "venv", "--without-pip", home).returncode == 0
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    uv = Path(sys.executable).with_name("uv")
    done = run(uv, "pip", "install", "-q", "--offline", "--no-deps", "--python", home / "bin" / "python", wheel)
    assert done.returncode == 0, done.stderr
    return home / "bin"


def test_the_wheel_contains_what_the_code_asks_for_beside_itself(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    texts = "".join(path.read_text() for path in SOURCE.rglob("*.py"))
    for name in set(re.findall(r'data_files\("(\w+)"\)', texts)):
        for path in (ROOT / name).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert f"sandlot/_data/{path.relative_to(ROOT)}" in inside
    for path in SOURCE.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            assert f"sandlot/{path.relative_to(SOURCE)}" in inside
    assert any(name.endswith("/licenses/LICENSE") for name in inside)
    assert not any("__pycache__" in name or name.startswith("tests/") for name in inside)


@pytest.fixture
def instance(installed: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """An instance started from the wheel: the variables that say which one it is."""
    variables = {"SANDLOT_DATA_DIR": str(tmp_path / "data"), "SANDLOT_PORT": "0", "SANDLOT_RUNTIME": "container"}
    up = run(installed / "sandlot", "up", "--detach", **variables)
    try:
        assert up.returncode == 0, up.stderr
        assert "Hello from Linux" in up.stderr
        yield variables
    finally:
        down = run(installed / "sandlot", "down", **variables)
    assert down.returncode == 0, down.stderr


def test_an_installed_wheel_serves_sandboxes(installed: Path, instance: dict[str, str]) -> None:
    def sandlot(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run(installed / "sandlot", *arguments, **instance)

    imported = run(installed / "python", "-P", "-c", "import sandlot; print(sandlot.__file__)")
    assert imported.stdout.startswith(str(installed.parent)), imported

    script = 'eval "$("$1/sandlot" env)"; exec "$1/python" -P -c "$2"'
    code = (
        "from e2b import Sandbox\n"
        "with Sandbox.create(timeout=60) as sandbox:\n"
        "    print(sandbox.commands.run('echo $((6*7))').stdout)"
    )
    used = run("sh", "-c", script, "sh", installed, code, **instance)
    assert used.stdout.strip() == "42", used.stderr

    assert sandlot("status").returncode == 0
    assert sandlot("run", "--", "sh", "-c", "exit 5").returncode == 5
    looked = sandlot("doctor")
    assert "✓ runtime container" in looked.stdout, looked.stdout + looked.stderr

    assert "there are: agent, " in sandlot("template", "build", "--stock", "no-such-template").stderr
    assert "not here" in sandlot("test").stderr


def test_messages_of_an_installed_wheel_name_the_command_that_is_installed(installed: Path, tmp_path: Path) -> None:
    where = {"SANDLOT_DATA_DIR": str(tmp_path)}
    for arguments in (["env", "--help"], ["run", "--help"], ["sandbox", "info", "--help"], ["--help"]):
        told = run(installed / "sandlot", *arguments, **where).stdout
        assert "sandlot" in told and "./sandlot" not in told
    told = run(installed / "sandlot", "env", **where).stderr
    assert "sandlot up --detach" in told and "./sandlot" not in told
