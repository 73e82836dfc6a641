"""A browser's requests, as far as the server can tell: its cookie, and the headers that pages cannot forge."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

SAME = {"Sec-Fetch-Site": "same-origin"}


def browser(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, headers={"Origin": url, **SAME}, timeout=60, trust_env=False)


@asynccontextmanager
async def logged_in(url: str, key: str) -> AsyncIterator[httpx.AsyncClient]:
    async with browser(url) as made:
        answer = await made.post("/console/login", json={"key": key})
        assert answer.status_code == 204, answer.text
        yield made
