"""The keys in addresses of browsers: made from a secret of the platform, so that none has to be kept."""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Callable
from datetime import datetime, timedelta

from sandlot.platform.core.errors import Unauthorized


class Signing:
    """`signing_key` lets its holder drive one browser for as long as it lives; a view token, look at it and click, for a while."""

    def __init__(self, secret: str, clock: Callable[[], datetime]) -> None:
        self._secret, self._clock = secret.encode(), clock

    def signing_key(self, browser_id: str) -> str:
        return f"{browser_id}.{self._mac('drive', browser_id)}"

    def driven(self, key: str) -> str:
        """The id of the browser that this key drives. Raises `Unauthorized`."""
        browser_id, _, given = key.partition(".")
        if not _same(given, self._mac("drive", browser_id)):
            raise Unauthorized("the signing key is not valid")
        return browser_id

    def view_token(self, browser_id: str, page: str, lasts_s: int) -> str:
        until = int((self._clock() + timedelta(seconds=lasts_s)).timestamp())
        return f"{browser_id}.{page}.{until}.{self._mac('view', browser_id, page, str(until))}"

    def viewed(self, token: str) -> tuple[str, str]:
        """The browser and the page that this token shows. Raises `Unauthorized`."""
        parts = token.split(".")
        if len(parts) != 4 or not _same(parts[3], self._mac("view", *parts[:3])):
            raise Unauthorized("the address of this live view is not valid")
        if not parts[2].isdecimal() or int(parts[2]) < self._clock().timestamp():
            raise Unauthorized("the address of this live view is too old; ask for a new one")
        return parts[0], parts[1]

    def _mac(self, *parts: str) -> str:
        made = hmac.new(self._secret, "\n".join(parts).encode("utf-8", "surrogatepass"), hashlib.sha256).digest()
        return urlsafe_b64encode(made).decode().rstrip("=")


def _same(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), right.encode())
