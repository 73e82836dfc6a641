"""Contexts: profiles that outlive browsers, kept sealed on the host. Packing and unpacking happens in the sandbox alone."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterable
from dataclasses import replace

from sandlot.platform.browsers.boxes import HERE, run_in
from sandlot.platform.browsers.cdp import close_browser
from sandlot.platform.browsers.vault import Vault
from sandlot.platform.core.browsers import Browser, BrowserContext, BrowserExtension, ContextStore, ExtensionStore
from sandlot.platform.core.errors import Conflict, InvalidRequest, NotFound
from sandlot.platform.core.ports import Box, Clock

MAX_PROFILE = 256 << 20
MAX_EXTENSION = 64 << 20
PACKED = "/tmp/.profile.tar"
EXTENSION_ZIP, EXTENSION = "/tmp/.extension.zip", "/home/user/.extension"


class Contexts:
    def __init__(self, *, store: ContextStore, vault: Vault, clock: Clock) -> None:
        self._store, self._vault, self._clock = store, vault, clock

    async def create(self, user_id: str, name: str | None) -> BrowserContext:
        if name is not None and await self._store.by_name(user_id, name) is not None:
            raise Conflict(f"there is a context of the name {name!r} already")
        now = self._clock()
        made = BrowserContext(
            id=f"ctx_{secrets.token_hex(12)}", user_id=user_id, name=name, created_at=now, updated_at=now
        )
        await self._store.add(made)
        return made

    async def get(self, user_id: str, id: str) -> BrowserContext:
        found = await self._store.get(id)
        if found is None or found.user_id != user_id:
            raise NotFound(f"context {id[:80]!r} was not found")
        return found

    async def touch(self, context: BrowserContext) -> BrowserContext:
        return await self._store.swap(context, replace(context, updated_at=self._clock()))

    async def delete(self, context: BrowserContext) -> None:
        await self._store.remove(context.id)
        if context.blob is not None:
            self._vault.drop(context.blob)

    async def load(self, context: BrowserContext, box: Box) -> bool:
        """Put the profile into a sandbox whose browser does not run. Whether there was one."""
        if context.blob is None or context.key is None:
            return False
        await box.files.write(PACKED, self._vault.get(context.blob, context.key))
        await run_in(box, f"{HERE}/profile.sh", "unpack", PACKED)
        return True

    async def save(self, browser: Browser, box: Box) -> None:
        """Keep the profile of a browser, which ends by this. The last one to be saved counts."""
        assert browser.context_id is not None
        await close_browser(box)
        await run_in(box, f"{HERE}/profile.sh", "pack", PACKED)
        blob, key = await self._vault.put(box.files.read(PACKED), MAX_PROFILE, "the profile")
        for _ in range(5):
            found = await self._store.get(browser.context_id)
            if found is None or found.user_id != browser.user_id:
                self._vault.drop(blob)
                return
            try:
                await self._store.swap(found, replace(found, blob=blob, key=key, updated_at=self._clock()))
            except Conflict:
                continue
            if found.blob is not None:
                self._vault.drop(found.blob)
            return
        self._vault.drop(blob)


class Extensions:
    def __init__(self, *, store: ExtensionStore, vault: Vault, clock: Clock) -> None:
        self._store, self._vault, self._clock = store, vault, clock

    async def create(self, user_id: str, file_name: str, content: AsyncIterable[bytes]) -> BrowserExtension:
        blob, key = await self._vault.put(_zip(content), MAX_EXTENSION, "the extension")
        made = BrowserExtension(
            id=f"ext_{secrets.token_hex(12)}",
            user_id=user_id,
            file_name=file_name[:255],
            created_at=self._clock(),
            blob=blob,
            key=key,
        )
        await self._store.add(made)
        return made

    async def get(self, user_id: str, id: str) -> BrowserExtension:
        found = await self._store.get(id)
        if found is None or found.user_id != user_id:
            raise NotFound(f"extension {id[:80]!r} was not found")
        return found

    async def delete(self, extension: BrowserExtension) -> None:
        await self._store.remove(extension.id)
        self._vault.drop(extension.blob)

    async def load(self, extension: BrowserExtension, box: Box) -> str:
        """Unpack it in a sandbox; returns the option with which Chromium takes it."""
        await box.files.write(EXTENSION_ZIP, self._vault.get(extension.blob, extension.key))
        await run_in(box, f"{HERE}/extension.sh", EXTENSION_ZIP, EXTENSION)
        return f"--load-extension={EXTENSION}"


async def _zip(content: AsyncIterable[bytes]) -> AsyncIterable[bytes]:
    is_first = True
    async for piece in content:
        if is_first and piece and not piece.startswith(b"PK\x03\x04"):
            raise InvalidRequest("an extension is a zip file with a manifest.json in it")
        is_first = is_first and not piece
        yield piece
    if is_first:
        raise InvalidRequest("the extension's file is empty")
