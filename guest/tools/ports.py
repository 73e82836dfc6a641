"""The tools about ports: what listens here, and where others reach it."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from fastmcp.exceptions import ToolError
from fastmcp.server.dependencies import get_http_headers
from pydantic import Field

from tools.workspace import Workspace

OWN = frozenset({6060, 49983})  # the tools' and the daemon's
_LISTEN = "0A"
_NAMED = re.compile(r"(?P<port>\d{1,5})-(?P<rest>[A-Za-z0-9][A-Za-z0-9.:-]*)")


class Ports:
    def __init__(self, workspace: Workspace, proc: Path = Path("/proc")) -> None:
        self._workspace, self._proc = workspace, proc

    def tools(self) -> Sequence[Any]:
        return (self.expose_port, self.list_ports)

    def expose_port(self, port: Annotated[int, Field(ge=1, le=65535)]) -> str:
        """The address at which a port of this sandbox is reached from outside."""
        return _moved(self._workspace.admission.address() or _asked(), port)

    def list_ports(self) -> dict[str, Any]:
        """The ports on which something in this sandbox listens."""
        owners = _owners(self._proc)
        found: dict[int, dict[str, Any]] = {}
        for name in ("tcp", "tcp6"):
            for port, address, inode in _listening(self._proc / "net" / name):
                if port in OWN:
                    continue
                entry = found.setdefault(port, {"port": port, "addresses": [], "pid": None, "program": None})
                entry["addresses"].append(address)
                if inode in owners:
                    entry["pid"], entry["program"] = owners[inode]
        return {"ports": [found[port] for port in sorted(found)]}


def _asked() -> str:
    """The address by which the caller came: another port has the same one but for the number."""
    headers = get_http_headers(include_all=True)
    host = headers.get("x-forwarded-host") or headers.get("host", "")
    if not _NAMED.fullmatch(host):
        raise ToolError(
            "the sandbox does not know its own address; outside, the SDK's get_host(port) or the platform's expose-port tells it"
        )
    is_local = "localhost" in host or ":" in host
    return f"{headers.get('x-forwarded-proto') or ('http' if is_local else 'https')}://{host}"


def _moved(url: str, port: int) -> str:
    scheme, _, host = url.partition("://")
    match = _NAMED.fullmatch(host.rstrip("/"))
    if not match:
        raise ToolError(
            f"the address {url!r} does not name a port; outside, the SDK's get_host(port) tells the right one"
        )
    return f"{scheme}://{port}-{match['rest']}"


def _listening(table: Path) -> Iterator[tuple[int, str, str]]:
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:
        return
    for line in lines:
        fields = line.split()
        if len(fields) > 9 and fields[3] == _LISTEN:
            address, _, port = fields[1].partition(":")
            yield int(port, 16), _address(address), fields[9]


def _address(text: str) -> str:
    """Groups of four bytes, each in the order of the processor."""
    raw = b"".join(bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8))
    return str(ipaddress.ip_address(raw))


def _owners(proc: Path) -> Mapping[str, tuple[int, str]]:
    """Which process holds which socket, as far as we may look."""
    found: dict[str, tuple[int, str]] = {}
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            name = (entry / "comm").read_text(errors="replace").strip()
            for descriptor in (entry / "fd").iterdir():
                with contextlib.suppress(OSError):
                    target = str(descriptor.readlink())
                    if target.startswith("socket:["):
                        found[target[8:-1]] = (int(entry.name), name)
    return found
