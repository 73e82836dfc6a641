"""What both halves of the product need of SQL: SQLite or PostgreSQL, opened, migrated and spoken of in the same way."""

from sandlot.sql.columns import Json, Number, UtcTime
from sandlot.sql.database import Database, Tables
from sandlot.sql.errors import Faults

__all__ = ["Database", "Faults", "Json", "Number", "Tables", "UtcTime"]
