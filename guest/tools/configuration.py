"""Reads `.mcp.json`: which MCP servers of the user's own are to be had through ours."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_CONFIG = 1 << 20
MOST_SERVERS = 32
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_HTTP = {"http": "http", "streamable-http": "http", "streamablehttp": "http", "sse": "sse"}


class Misconfigured(Exception):
    """The file, or one entry of it, cannot be used; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to reach one server."""

    name: str
    kind: str  # stdio, http or sse
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def read(path: Path, variables: Mapping[str, str]) -> dict[str, Plan | str]:
    """The servers by name; for one that cannot be understood, what is wrong with it. Raises `Misconfigured`."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_CONFIG + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Misconfigured(f"{path} could not be read: {error.strerror}") from error
    if len(text) > MOST_CONFIG:
        raise Misconfigured(f"{path} is larger than {MOST_CONFIG >> 20} MiB")
    try:
        servers = json.loads(text)["mcpServers"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Misconfigured(f'{path} must be JSON of the form {{"mcpServers": {{name: ...}}}}: {error}') from error
    if not isinstance(servers, dict) or len(servers) > MOST_SERVERS:
        raise Misconfigured(f"{path}: mcpServers must be an object of at most {MOST_SERVERS} servers")
    return {name: _planned(name, entry, variables) for name, entry in servers.items() if not _is_disabled(entry)}


def _is_disabled(entry: Any) -> bool:
    return isinstance(entry, dict) and entry.get("disabled") is True


def _planned(name: str, entry: Any, variables: Mapping[str, str]) -> Plan | str:
    try:
        return _plan(name, entry, variables)
    except Misconfigured as error:
        return str(error)


def _plan(name: str, entry: Any, variables: Mapping[str, str]) -> Plan:
    if not _NAME.fullmatch(name):
        raise Misconfigured("its name must have at most 40 letters, digits, - and _")
    if not isinstance(entry, dict):
        raise Misconfigured("it must be an object")

    def filled(text: object, what: str) -> str:
        if not isinstance(text, str) or "\0" in text:
            raise Misconfigured(f"{what} must be a text")
        return _VARIABLE.sub(lambda match: _value(match, variables, what), text)

    def pairs(what: str) -> dict[str, str]:
        given = entry.get(what) or {}
        if not isinstance(given, dict):
            raise Misconfigured(f"{what} must be an object")
        return {str(key): filled(value, what) for key, value in given.items()}

    kind = str(entry.get("type") or ("http" if "url" in entry else "stdio")).lower()
    if kind == "stdio":
        if not entry.get("command"):
            raise Misconfigured("it has neither a command nor a url")
        args = entry.get("args") or []
        if not isinstance(args, list):
            raise Misconfigured("args must be a list")
        return Plan(
            name=name,
            kind=kind,
            command=filled(entry["command"], "command"),
            args=tuple(filled(arg, "args") for arg in args),
            env=pairs("env"),
            cwd=filled(entry["cwd"], "cwd") if entry.get("cwd") else None,
        )
    if kind not in _HTTP:
        raise Misconfigured(f"type {kind!r} is not known; there are stdio, http and sse")
    url = filled(entry.get("url"), "url")
    if not url.startswith(("http://", "https://")):
        raise Misconfigured("url must begin with http:// or https://")
    return Plan(name=name, kind=_HTTP[kind], url=url, headers=pairs("headers"))


def _value(match: re.Match[str], variables: Mapping[str, str], what: str) -> str:
    value = variables.get(match[1], match[2])
    if value is None:
        raise Misconfigured(f"{what} names the variable {match[1]}, which the sandbox does not have")
    return value
