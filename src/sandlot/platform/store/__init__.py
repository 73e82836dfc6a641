"""The platform's store: sessions, commands, tasks, events, deliveries in and out, keys, repositories, pull requests and calls of models, in SQLite or PostgreSQL."""

from sandlot.platform.store.audit import SqlAudit
from sandlot.platform.store.browsers import SqlBrowserContexts, SqlBrowserExtensions, SqlBrowsers
from sandlot.platform.store.commands import SqlCommands
from sandlot.platform.store.database import Database
from sandlot.platform.store.deliveries import SqlDeliveries
from sandlot.platform.store.events import SqlEvents
from sandlot.platform.store.facts import SqlFacts
from sandlot.platform.store.inbox import SqlGitHubInbox
from sandlot.platform.store.keys import SqlKeys
from sandlot.platform.store.logins import SqlLogins
from sandlot.platform.store.models import SqlModelCalls
from sandlot.platform.store.repositories import SqlPullComments, SqlPullRequests, SqlRepositories
from sandlot.platform.store.rules import SqlTriggerRules
from sandlot.platform.store.sessions import SqlSessions
from sandlot.platform.store.tasks import SqlTasks, SqlTaskSteps, SqlTimeline
from sandlot.platform.store.usage import SqlUsage

__all__ = [
    "Database",
    "SqlAudit",
    "SqlBrowserContexts",
    "SqlBrowserExtensions",
    "SqlBrowsers",
    "SqlCommands",
    "SqlDeliveries",
    "SqlEvents",
    "SqlFacts",
    "SqlGitHubInbox",
    "SqlKeys",
    "SqlLogins",
    "SqlModelCalls",
    "SqlPullComments",
    "SqlPullRequests",
    "SqlRepositories",
    "SqlSessions",
    "SqlTaskSteps",
    "SqlTasks",
    "SqlTimeline",
    "SqlTriggerRules",
    "SqlUsage",
]
