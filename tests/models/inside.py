"""A scripted model inside a sandbox: put there and started through the SDK, because sandboxes do not reach the host."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import dataclass
from typing import Any

from e2b import CommandExitException, Sandbox
from tests.models.archive import archive
from tests.models.script import Script, dump

HOME = "/tmp/scripted-model"
PORT = 8099


@dataclass(frozen=True)
class ModelInside:
    sandbox: Sandbox
    port: int = PORT

    @property
    def url(self) -> str:
        """As the sandbox's own processes reach it."""
        return f"http://127.0.0.1:{self.port}"

    def start(self, script: Script, *, within_s: float = 60) -> ModelInside:
        self.sandbox.files.write(f"{HOME}/model.pyz", archive())
        self.sandbox.files.write(f"{HOME}/script.json", dump(script))
        command = f"exec python3 {HOME}/model.pyz {HOME}/script.json --port {self.port} >{HOME}/log 2>&1"
        self.sandbox.commands.run(command, background=True, timeout=0)
        deadline = time.monotonic() + within_s
        while not self._answers():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the scripted model did not start: {self.sandbox.files.read(f'{HOME}/log')}")
            time.sleep(0.2)
        return self

    def replace(self, script: Script) -> None:
        """Another script, with nothing kept of the one before."""
        self.sandbox.files.write(f"{HOME}/script.json", dump(script))
        self._curl("-X", "PUT", "--data-binary", f"@{HOME}/script.json", f"{self.url}/_/script")

    def state(self) -> dict[str, Any]:
        """`problems`, `results`, `tools` and `requests`, as `ScriptedModel.state` tells them."""
        told: dict[str, Any] = json.loads(self._curl(f"{self.url}/_/state"))
        return told

    def _answers(self) -> bool:
        try:
            self._curl(f"{self.url}/v1/models")
        except CommandExitException:
            return False
        return True

    def _curl(self, *arguments: str) -> str:
        return self.sandbox.commands.run(f"curl -sS --fail --noproxy '*' {shlex.join(arguments)}", timeout=60).stdout
