"""Which certificate a server has. What makes one is large and needed once in years: it runs in a process of its own."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import ssl
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from sandlot.server.errors import StartupFailed
from sandlot.server.hosts import hostname

MAKING_S = 60
NOTE = "made.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    chain: Path
    key: Path
    authority: Path | None  # what clients must trust; None: the user's certificate, which they trust already


def find_certificate(
    domain: str, directory: Path, *, chain: Path | None = None, key: Path | None = None
) -> Certificate:
    """The user's certificate if one is given, else one of the local authority in `directory`, made when it is due."""
    if chain is not None or key is not None:
        return given(chain, key)
    found, name = local(directory), hostname(domain)
    if _noted(found, name):
        return found
    made = subprocess.run(
        [sys.executable, "-P", "-m", "sandlot.server.tls", name, str(directory)],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},  # wherever this module came from
        capture_output=True,
        text=True,
        timeout=MAKING_S,
        check=False,
    )
    if made.returncode != 0:
        raise StartupFailed(f"no certificate for {name} could be made: {made.stderr.strip()[-500:]}")
    note = {"name": name, "renew_at": made.stdout.strip(), "digest": _digest(found)}
    (directory / NOTE).write_text(json.dumps(note))
    return found


def local(directory: Path) -> Certificate:
    return Certificate(chain=directory / "server.crt", key=directory / "server.key", authority=directory / "ca.crt")


def given(chain: Path | None, key: Path | None) -> Certificate:
    if chain is None or key is None:
        raise StartupFailed("TLS needs both SANDLOT_TLS_CERT and SANDLOT_TLS_KEY; set the missing one")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(chain, key)
    except (OSError, ssl.SSLError) as error:
        raise StartupFailed(f"the certificate {chain.name} with the key {key.name} cannot be used: {error}") from error
    return Certificate(chain=chain, key=key, authority=None)


def _noted(found: Certificate, name: str) -> bool:
    """Whether these very files were made for this name, and last."""
    try:
        note = json.loads((found.chain.parent / NOTE).read_text())
        renew_at = datetime.datetime.fromisoformat(note["renew_at"])
        same = note["name"] == name and note["digest"] == _digest(found)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return bool(same and renew_at > datetime.datetime.now(datetime.UTC))


def _digest(found: Certificate) -> str:
    assert found.authority is not None
    parts = (found.chain, found.key, found.authority, found.authority.with_name("ca.key"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in parts)).hexdigest()
