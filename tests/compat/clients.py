"""Released clients of E2B in environments of their own: installed once for each version, and run through their scenarios."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.agents.packages import kept
from tests.e2e.server import clean_environment

HERE = Path(__file__).parent
KINDS = ("python", "python-interpreter", "js", "js-interpreter", "cli")
SCENARIO_S = 300
Outcomes = dict[tuple[str, str], dict[str, dict[str, Any]]]  # by kind and version: by method


def matrix() -> dict[str, Any]:
    return tomllib.loads((HERE / "matrix.toml").read_text())


def try_client(kind: str, version: str, exports: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """How each method of this client went against the server that `./sandlot env` speaks of."""
    home = installed(kind, version)
    environment = {**clean_environment(), **exports}
    if kind == "cli":
        return {name: _cli(home, environment, name) for name in ("sandbox list", "template list")}
    if kind.startswith("python"):
        argv = [str(home / "bin" / "python"), str(HERE / "scenario.py"), kind]
    else:
        argv = ["node", str(HERE / "scenario.mjs"), kind]
    done = subprocess.run(argv, cwd=home, env=environment, capture_output=True, text=True, timeout=SCENARIO_S)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return {"create": {"ok": False, "why": done.stderr.strip()[-300:]}}
    return {line["method"]: {"ok": line["ok"], "why": line.get("why", "")} for line in lines}


def _cli(home: Path, environment: Mapping[str, str], command: str) -> dict[str, Any]:
    argv = [str(home / "node_modules" / ".bin" / "e2b"), *command.split()]
    done = subprocess.run(argv, cwd=home, env=dict(environment), capture_output=True, text=True, timeout=120)
    return {"ok": done.returncode == 0, "why": (done.stderr or done.stdout).strip()[-300:]}


def installed(kind: str, version: str) -> Path:
    package, beside = matrix()[kind]["package"], matrix()[kind].get("beside", {}).get(version)

    def install(home: Path) -> None:
        if kind.startswith("python"):
            _run([sys.executable, "-m", "venv", str(home)])
            install_python(home / "bin" / "python", f"{package}=={version}", *filter(None, [beside]))
        else:
            install_node(home, f"{package}@{version}")

    return kept(f"compat-{kind}-{version}" + (f"-{beside}" if beside else ""), install)


def install_node(home: Path, *packages: str) -> None:
    (home / "package.json").write_text('{"private": true}')
    _run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *packages], cwd=home)


def install_python(python: Path, *requirements: str) -> None:
    """With uv, which takes seconds; with pip where uv finds no index, because only pip reads pip's settings."""
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "-q", "--python", str(python), *requirements]
    environment = {**clean_environment(), "UV_SYSTEM_CERTS": "1"}
    if subprocess.run(uv, env=environment, capture_output=True).returncode != 0:
        _run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *requirements])


def _run(argv: list[str], cwd: Path | None = None) -> None:
    done = subprocess.run(argv, cwd=cwd, env=clean_environment(), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{argv}: {done.stdout[-500:]}\n{done.stderr[-500:]}"
