"""Rows and records: how each record of `model` is written to a row and read back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, TypeVar

from sandlot.engine.core.codec import decode, encode
from sandlot.engine.core.model import (
    Build,
    BuildStatus,
    Content,
    EgressProxy,
    HeaderRule,
    Isolation,
    Key,
    LogEntry,
    Machine,
    NetworkPolicy,
    OnTimeout,
    PauseMode,
    Resources,
    Sandbox,
    Secret,
    State,
    Tag,
    Team,
    Template,
)
from sandlot.sql.sealing import Sealer

R = TypeVar("R")
Values = Mapping[Any, Any]


def _values(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _build(kind: type[R], values: Values) -> R:
    """A record from stored values. Fields it does not know are left out: a later version may have written them."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in values.items() if name in known})


def _read_only(values: Values) -> Values:
    return MappingProxyType(dict(values))


def team(row: Values) -> Team:
    return _build(Team, row)


def team_row(record: Team) -> dict[str, Any]:
    return _values(record)


def key(row: Values) -> Key:
    return _build(Key, row)


def key_row(record: Key) -> dict[str, Any]:
    return _values(record)


def template(row: Values) -> Template:
    return _build(
        Template,
        {
            **row,
            "layers": tuple(row["layers"]),
            "resources": _build(Resources, row["resources"]),
            "env": _read_only(row["env"]),
        },
    )


def template_row(record: Template) -> dict[str, Any]:
    return {
        **_values(record),
        "layers": list(record.layers),
        "resources": _values(record.resources),
        "env": dict(record.env),
    }


def sandbox(row: Values, sealer: Sealer) -> Sandbox:
    return _build(
        Sandbox,
        {
            **row,
            "state": State(row["state"]),
            "resources": _build(Resources, row["resources"]),
            "machine": _machine(row["machine"]) if row["machine"] is not None else None,
            "metadata": _read_only(row["metadata"]),
            "env_vars": _read_only(row["env_vars"]),
            "network": _network(row["network"], sealer.open(row["egress"])),
            "on_timeout": OnTimeout(row["on_timeout"]),
            "pause_mode": PauseMode(row["pause_mode"]) if row["pause_mode"] is not None else None,
        },
    )


def sandbox_row(record: Sandbox, sealer: Sealer) -> dict[str, Any]:
    machine, network, egress = record.machine, _values(record.network), None
    rules, proxy = network.pop("rules"), network.pop("egress_proxy")
    network.pop("secrets")  # values are looked up anew whenever a node needs them
    if rules or proxy is not None:
        egress = sealer.seal({"rules": encode(rules), "egress_proxy": encode(proxy)})
    return {
        **_values(record),
        "state": record.state.value,
        "resources": _values(record.resources),
        "machine": {**_values(machine), "handle": dict(machine.handle)} if machine is not None else None,
        "metadata": dict(record.metadata),
        "env_vars": dict(record.env_vars),
        "network": network,
        "egress": egress,
        "on_timeout": record.on_timeout.value,
        "pause_mode": record.pause_mode.value if record.pause_mode is not None else None,
    }


def _machine(values: Values) -> Machine:
    return _build(
        Machine, {**values, "isolation": Isolation(values["isolation"]), "handle": _read_only(values["handle"])}
    )


def _network(values: Values, egress: Values | None) -> NetworkPolicy:
    found = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    if egress is not None:
        found["rules"] = decode(tuple[HeaderRule, ...], egress["rules"])
        found["egress_proxy"] = decode(EgressProxy | None, egress["egress_proxy"])
    return _build(NetworkPolicy, found)


def secret(row: Values) -> Secret:
    return _build(Secret, {**row, "metadata": _read_only(row["metadata"])})


def secret_row(record: Secret) -> dict[str, Any]:
    return {**_values(record), "metadata": dict(record.metadata)}


def build(row: Values) -> Build:
    return _build(
        Build,
        {
            **row,
            "status": BuildStatus(row["status"]),
            "tags": tuple(row["tags"]),
            "resources": _build(Resources, row["resources"]),
            "content": content(row["content"]) if row["content"] is not None else None,
        },
    )


def build_row(record: Build) -> dict[str, Any]:
    return {
        **_values(record),
        "status": record.status.value,
        "tags": list(record.tags),
        "resources": _values(record.resources),
        "content": content_row(record.content) if record.content is not None else None,
    }


def content_row(record: Content) -> dict[str, Any]:
    return {**_values(record), "layers": list(record.layers), "env": dict(record.env)}


def content(values: Values) -> Content:
    return _build(Content, {**values, "layers": tuple(values["layers"]), "env": _read_only(values["env"])})


def tag(row: Values) -> Tag:
    return _build(Tag, row)


def tag_row(record: Tag) -> dict[str, Any]:
    return _values(record)


def log_entry(row: Values) -> LogEntry:
    return _build(LogEntry, {**row, "fields": _read_only(row["fields"])})


def log_row(record: LogEntry) -> dict[str, Any]:
    return {**_values(record), "fields": dict(record.fields)}
