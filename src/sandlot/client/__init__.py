"""A small client of the platform: `async with Client(url, key) as client: task = await client.tasks.create("app", "Add a test")`."""

from sandlot.client.client import Client, Sandbox
from sandlot.client.errors import Busy, ClientError, NotFound, Unauthorized, Unavailable
from sandlot.client.forge_records import BranchInfo, Diff, FileDiff, PullComment, PullRequestInfo, RepositoryInfo
from sandlot.client.records import CommandOutput, CommandResult, Event, QueuePosition, SandboxInfo, ToolsAccess
from sandlot.client.task_records import (
    Artifact,
    TaskAttempt,
    TaskCheck,
    TaskInfo,
    TaskLimits,
    TaskNetwork,
    TaskNews,
    TaskStep,
    TimelineEntry,
)
from sandlot.client.tasks import Task

__all__ = [
    "Artifact",
    "BranchInfo",
    "Busy",
    "Client",
    "ClientError",
    "CommandOutput",
    "CommandResult",
    "Diff",
    "Event",
    "FileDiff",
    "NotFound",
    "PullComment",
    "PullRequestInfo",
    "QueuePosition",
    "RepositoryInfo",
    "Sandbox",
    "SandboxInfo",
    "Task",
    "TaskAttempt",
    "TaskCheck",
    "TaskInfo",
    "TaskLimits",
    "TaskNetwork",
    "TaskNews",
    "TaskStep",
    "TimelineEntry",
    "ToolsAccess",
    "Unauthorized",
    "Unavailable",
]
