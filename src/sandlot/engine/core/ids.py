"""Ids and tokens: what they look like, and making new ones."""

from __future__ import annotations

import re
import secrets
import string

SANDBOX_ID = re.compile(r"[a-z0-9]{1,64}")
_ALPHABET = string.ascii_lowercase + string.digits


def new_sandbox_id() -> str:
    return f"i{random_id()}"


def new_machine_id() -> str:
    """For a machine that belongs to no sandbox yet."""
    return f"m{random_id()}"


def random_id() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(20))


def new_token() -> str:
    return secrets.token_hex(32)


def parse_sandbox_id(text: str) -> str:
    """The sandbox's own id, also from the older form `{id}-{clientID}`."""
    return text.partition("-")[0]
