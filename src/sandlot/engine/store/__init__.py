"""The store: rows of teams, keys, templates and sandboxes in SQLite or PostgreSQL, behind the protocols of `ports`."""

from sandlot.engine.store.access import SqlAccess
from sandlot.engine.store.builds import SqlBuilds
from sandlot.engine.store.database import Database
from sandlot.engine.store.egress import SqlEgress
from sandlot.engine.store.histories import SqlHistories
from sandlot.engine.store.sandboxes import SqlSandboxes
from sandlot.engine.store.secrets import SqlSecrets
from sandlot.engine.store.tags import SqlTags
from sandlot.engine.store.templates import SqlTemplates

__all__ = [
    "Database",
    "SqlAccess",
    "SqlBuilds",
    "SqlEgress",
    "SqlHistories",
    "SqlSandboxes",
    "SqlSecrets",
    "SqlTags",
    "SqlTemplates",
]
