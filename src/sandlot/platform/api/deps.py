"""What the platform's routes are given: its services, and who is asking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyHeader, HTTPBearer

from sandlot.platform.agents.descriptions import AgentDescription
from sandlot.platform.audit.log import AuditLog
from sandlot.platform.browsers.parts import BrowserServices
from sandlot.platform.console.parts import Console
from sandlot.platform.core.model import Caller, Scope
from sandlot.platform.events.log import EventLog
from sandlot.platform.forges.local import LocalForge
from sandlot.platform.forges.repositories import Repositories
from sandlot.platform.git.service import GitService
from sandlot.platform.identity.keys import Access, require
from sandlot.platform.models.parts import ModelServices
from sandlot.platform.sessions.background import BackgroundCommands
from sandlot.platform.sessions.commands import Commands
from sandlot.platform.sessions.files import Files
from sandlot.platform.sessions.service import Sessions
from sandlot.platform.sessions.terminals import Terminals
from sandlot.platform.sessions.tools import SandboxTools
from sandlot.platform.tasks.artifacts import Artifacts
from sandlot.platform.tasks.board import TaskBoard
from sandlot.platform.tasks.service import Tasks
from sandlot.platform.tasks.timeline import Timeline
from sandlot.platform.triggers.inbox import GitHubInbox
from sandlot.platform.triggers.rules import RuleBook
from sandlot.program import SANDLOT

TASK = "sandlot.task"  # where in the scope the id of the task stands whose agent is asking
CALLER = "sandlot.caller"  # where in the scope the entry point leaves who is asking


@dataclass(frozen=True, slots=True, kw_only=True)
class Deps:
    access: Access
    sessions: Sessions
    commands: Commands
    background: BackgroundCommands
    files: Files
    terminals: Terminals
    tools: SandboxTools
    events: EventLog
    repositories: Repositories
    local: LocalForge
    git: GitService
    inbox: GitHubInbox
    rules: RuleBook
    tasks: Tasks
    board: TaskBoard
    timeline: Timeline
    artifacts: Artifacts
    agents: Mapping[str, AgentDescription]
    models: ModelServices
    browsers: BrowserServices
    audit: AuditLog
    console: Console
    version: str
    keep_alive_s: float = 15.0


def given(request: Request) -> Deps:
    return cast(Deps, request.app.state.deps)


Given = Annotated[Deps, Depends(given)]

# Only for the description: the entry point checks the key before anything of a body is read.
_key = APIKeyHeader(name="X-API-KEY", auto_error=False, description=f"A platform key: `{SANDLOT} platform key create`.")
_bearer = HTTPBearer(auto_error=False, description="The same key, for clients that send it this way.")


def caller(
    request: Request, key: Annotated[object, Security(_key)], bearer: Annotated[object, Security(_bearer)]
) -> Caller:
    return cast(Caller, request.scope[CALLER])


Asking = Annotated[Caller, Depends(caller)]


def reader(asking: Asking) -> Caller:
    require(asking, Scope.READ)
    return asking


def writer(asking: Asking) -> Caller:
    require(asking, Scope.WRITE)
    return asking


Reader = Annotated[Caller, Depends(reader)]
Writer = Annotated[Caller, Depends(writer)]
