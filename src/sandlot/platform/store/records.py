"""Conversion between rows and the records of `core`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from types import MappingProxyType
from typing import Any

from sandlot.platform.core.console import BrowserSession, LoginLink
from sandlot.platform.core.events import Event, Subject
from sandlot.platform.core.model import (
    BackgroundCommand,
    BoundSecret,
    CommandStatus,
    SandboxNetwork,
    Scope,
    Session,
    SessionStatus,
    StartOption,
    UserKey,
)

Row = Mapping[Any, Any]


def _values(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def session(row: Row) -> Session:
    known = {field.name: row[field.name] for field in fields(Session)}
    return Session(
        **{
            **known,
            "status": SessionStatus(row["status"]),
            "envs": MappingProxyType(dict(row["envs"])),
            "metadata": MappingProxyType(dict(row["metadata"])),
            "network": _network(row["network"]),
            "alternatives": tuple(StartOption(**option) for option in row["alternatives"] or ()),
        }
    )


def session_row(record: Session) -> dict[str, Any]:
    return {
        **_values(record),
        "status": record.status.value,
        "envs": dict(record.envs),
        "metadata": dict(record.metadata),
        "network": {
            "internet": record.network.internet,
            "allow": list(record.network.allow),
            "secrets": [{"name": each.name, "hosts": list(each.hosts)} for each in record.network.secrets],
        },
        "alternatives": [asdict(option) for option in record.alternatives],
        "live_key": record.live_key,
    }


def _network(stored: Mapping[str, Any] | None) -> SandboxNetwork:
    if not stored:
        return SandboxNetwork()
    bound = (BoundSecret(name=each["name"], hosts=tuple(each["hosts"])) for each in stored.get("secrets") or ())
    return SandboxNetwork(internet=stored["internet"], allow=tuple(stored["allow"]), secrets=tuple(bound))


def command(row: Row) -> BackgroundCommand:
    known = {field.name: row[field.name] for field in fields(BackgroundCommand)}
    return BackgroundCommand(**{**known, "status": CommandStatus(row["status"])})


def command_row(record: BackgroundCommand) -> dict[str, Any]:
    return {**_values(record), "status": record.status.value}


def event(row: Row) -> Event:
    return Event(
        id=row["id"],
        type=row["type"],
        at=row["at"],
        user_id=row["user_id"],
        subject=Subject(row["subject_kind"], row["subject_id"]),
        session_id=row["session_id"],
        data=MappingProxyType(dict(row["data"])),
    )


def event_row(record: Event) -> dict[str, Any]:
    return {
        "type": record.type,
        "at": record.at,
        "user_id": record.user_id,
        "subject_kind": record.subject.kind,
        "subject_id": record.subject.id,
        "session_id": record.session_id,
        "data": dict(record.data),
    }


def key(row: Row) -> UserKey:
    known = {field.name: row[field.name] for field in fields(UserKey)}
    return UserKey(**{**known, "scopes": frozenset(Scope(scope) for scope in row["scopes"])})


def key_row(record: UserKey) -> dict[str, Any]:
    return {**_values(record), "scopes": sorted(scope.value for scope in record.scopes)}


def browser_session(row: Row) -> BrowserSession:
    known = {field.name: row[field.name] for field in fields(BrowserSession)}
    return BrowserSession(**{**known, "scopes": frozenset(Scope(scope) for scope in row["scopes"])})


def browser_session_row(record: BrowserSession) -> dict[str, Any]:
    return {**_values(record), "scopes": sorted(scope.value for scope in record.scopes)}


def login_link(row: Row) -> LoginLink:
    return LoginLink(**{field.name: row[field.name] for field in fields(LoginLink)})


def login_link_row(record: LoginLink) -> dict[str, Any]:
    return _values(record)
