"""Virtual keys: each names one task or session, is worth nothing elsewhere, and only while that one is alive."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable

from sandlot.platform.core.errors import Unauthorized
from sandlot.platform.core.models import BudgetScope, ModelClient

PREFIX = "slm_"
_FORM = re.compile(r"slm_(task|session)_([A-Za-z0-9_-]{1,80})_([0-9a-f]{40})")
FindClient = Callable[[BudgetScope, str], Awaitable[ModelClient | None]]  # None: it is not there, or not at work
FindUser = Callable[[str], Awaitable[ModelClient]]  # by a key of the platform; raises `Unauthorized`, `Forbidden`


class ModelKeys:
    def __init__(self, *, secret: str, find: FindClient, user: FindUser) -> None:
        self._secret, self._find, self._user = secret.encode(), find, user

    def key(self, scope: BudgetScope, id: str) -> str:
        return f"{PREFIX}{scope.value}_{id}_{self._mac(scope.value, id)}"

    async def client(self, secret: str | None, only: tuple[BudgetScope, str] | None = None) -> ModelClient:
        """Whose key this is. `only` is who may call at this door; anybody if None. Raises `Unauthorized`, `Forbidden`."""
        if not secret:
            raise Unauthorized("no key: this gateway wants the virtual key that the task or session was given")
        found = _FORM.fullmatch(secret)
        if found is None:
            if only is not None:
                raise Unauthorized("the key is not the one that this task was given")
            return await self._user(secret)
        scope, id = BudgetScope(found[1]), found[2]
        if not hmac.compare_digest(found[3], self._mac(scope.value, id)) or only not in (None, (scope, id)):
            raise Unauthorized("the virtual key is not valid here")
        client = await self._find(scope, id)
        if client is None:
            raise Unauthorized(f"the virtual key is of no use any more: the {scope.value} is not at work")
        return client

    def _mac(self, scope: str, id: str) -> str:
        return hmac.new(self._secret, f"model:{scope}:{id}".encode(), hashlib.sha256).hexdigest()[:40]
