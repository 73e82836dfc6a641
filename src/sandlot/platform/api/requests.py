"""What callers send: each body as a type, with its limits."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from sandlot.platform.core.backends import Capability
from sandlot.platform.core.model import Caller
from sandlot.platform.sessions.service import WAIT_S, SessionTarget

MAX_TIMEOUT_S = 30 * 86400
MAX_TEXT = 24 << 20

Identifier = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Path = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]+$")]
Timeout = Annotated[int, Field(ge=1, le=MAX_TIMEOUT_S)]
Pairs = dict[Annotated[str, Field(min_length=1, max_length=256)], Annotated[str, Field(max_length=128 << 10)]]
Wait = Annotated[float, Field(ge=0, le=600, description="Most seconds to wait until it runs.")]


class Body(BaseModel):
    model_config = ConfigDict(extra="ignore")


class CreateSandbox(Body):
    user_id: Identifier | None = Field(None, description="Whose sandbox. May be left out with a user's own key.")
    session_id: Identifier | None = Field(None, description="Your name for it: the same name finds the same sandbox.")
    template_id: Identifier | None = None
    agent_type: Identifier | None = Field(None, description="A type of agent from the configuration.")
    provider: Identifier | None = Field(None, description="A provider from the configuration.")
    backend: Identifier | None = Field(None, description="A backend from the configuration, instead of a provider.")
    capabilities: frozenset[Capability] = Field(
        frozenset(), description="What its backend must have; it is refused where something is missing."
    )
    envs: Pairs = Field(default_factory=dict, max_length=256)
    metadata: Pairs = Field(default_factory=dict, max_length=64)
    timeout: Timeout | None = Field(None, description="Seconds it runs without anybody asking for more.")
    wait: Wait = WAIT_S

    @field_validator("envs", "metadata")
    @classmethod
    def _no_nul(cls, value: dict[str, str]) -> dict[str, str]:
        if any("\x00" in text for pair in value.items() for text in pair):
            raise ValueError("names and values must not hold NUL characters")
        return value

    @field_validator("metadata")
    @classmethod
    def _not_ours(cls, value: dict[str, str]) -> dict[str, str]:
        if any(name.startswith("sandlot-") for name in value):
            raise ValueError("names that begin with sandlot- are the platform's own")
        return value


class SandboxBody(Body):
    sandbox_id: Identifier
    user_id: Identifier | None = Field(None, description="With an admin key: act for this user only.")
    wait: Wait = WAIT_S

    def target(self, caller: Caller) -> SessionTarget:
        return SessionTarget(caller=caller, sandbox_id=self.sandbox_id, user_id=self.user_id, wait_s=self.wait)


class SetTimeout(SandboxBody):
    timeout: Timeout


class ExposePort(SandboxBody):
    port: Annotated[int, Field(ge=1, le=65535)]


class RunCommand(SandboxBody):
    command: Annotated[str, Field(min_length=1, max_length=1 << 20, pattern=r"^[^\x00]+$")]
    background: bool = Field(False, description="Return as soon as it has started.")
    keep_awake: bool = Field(False, description="With background: no idle pause while it runs, also after a restart.")
    stream: bool = Field(False, description="Answer with lines of JSON as it happens (SSE if you accept that).")
    cwd: Path | None = None
    envs: Pairs = Field(default_factory=dict, max_length=256)
    user: Identifier | None = Field(None, description="Who runs it in the sandbox.")
    timeout: Annotated[float, Field(gt=0, le=86400)] = Field(300.0, description="Seconds until it is ended.")

    @model_validator(mode="after")
    def _keeps_awake_in_the_background(self) -> RunCommand:
        if self.keep_awake and (self.stream or not self.background):
            raise ValueError("keep_awake is for background commands; others keep their sandbox awake anyway")
        return self


class WriteFile(SandboxBody):
    path: Path
    content: Annotated[str, Field(max_length=MAX_TEXT)]
    encoding: Literal["utf-8", "base64"] = "utf-8"


class ReadFile(SandboxBody):
    path: Path
    encoding: Literal["utf-8", "base64"] = "utf-8"


class DownloadFile(SandboxBody):
    path: Path
