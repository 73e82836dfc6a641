"""Git's smart HTTP for repositories that are hosted here: `/git/{name}.git`, with a platform key as the password."""

from __future__ import annotations

import re

from starlette.types import Receive, Scope, Send

from sandlot.platform.api.credentials import secret_of
from sandlot.platform.api.deps import Deps
from sandlot.platform.api.errors import status_of
from sandlot.platform.core.errors import NotFound, PlatformError, Unauthorized
from sandlot.platform.core.forges import ForgeKind
from sandlot.platform.core.model import Caller
from sandlot.platform.core.model import Scope as KeyScope
from sandlot.platform.git.http_backend import GitTarget, answer
from sandlot.platform.git.service import password_of
from sandlot.platform.identity.keys import require

PATH = "/git/"
MAX_PUSH = 2 << 30
_NAMED = re.compile(r"/git/([^/]{1,100})\.git/[a-z/-]+")
_CHALLENGE = {b"www-authenticate": b'Basic realm="sandlot"'}


class GitEndpoint:
    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            caller = await self._deps.access.authenticate(password_of(scope) or secret_of(scope))
            require(caller, KeyScope.READ)
            target = await self._target(caller, scope)
        except Unauthorized:
            return await answer(send, 401, "git wants a platform key as the password", _CHALLENGE)
        except PlatformError as error:
            return await answer(send, status_of(error), str(error))
        await self._deps.git.backend.serve(target, scope, receive, send)

    async def _target(self, caller: Caller, scope: Scope) -> GitTarget:
        found = _NAMED.fullmatch(scope["path"])
        if found is None:
            raise NotFound("repositories are at /git/NAME.git")
        repository = await self._deps.repositories.get(caller, found[1])
        if repository.forge is not ForgeKind.LOCAL:
            raise NotFound(f"repository {repository.name!r} is not hosted here; clone it from {repository.url}")
        may_push = caller.is_admin or KeyScope.WRITE in caller.scopes
        path = await self._deps.git.mirrors.refresh(repository)
        return GitTarget(path=path, may_push=may_push, max_bytes=MAX_PUSH, user=caller.user_id or "admin")
