"""Requests about one repository at GitHub: its paths, its account, and GitHub's errors in our words."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import gidgethub

from sandlot.platform.core.forges import Repository
from sandlot.platform.forges.github_accounts import GitHubAccounts, place_of
from sandlot.platform.forges.github_api import GitHubApi

REPOSITORY = "/repos{/owner,repo}"
MOST_ITEMS = 500


@asynccontextmanager
async def asked(accounts: GitHubAccounts, repository: Repository, doing: str) -> AsyncIterator[RepositoryRequests]:
    """One operation: its account, and its errors in our words."""
    place, api = place_of(repository.url), await accounts.api(repository)
    with api.asked(doing):
        try:
            yield RepositoryRequests(api, place.owner, place.name)
        except gidgethub.HTTPException as error:
            if int(error.status_code) == 401:
                accounts.forget(repository)
            raise


class RepositoryRequests:
    """Requests about one repository."""

    def __init__(self, api: GitHubApi, owner: str, name: str) -> None:
        self.owner, self.name, self._api = owner, name, api
        self._values = {"owner": owner, "repo": name}

    async def get(self, path: str, **values: Any) -> Any:
        return await self._api.getitem(REPOSITORY + path, self._filled(values))

    async def all(self, path: str, *, key: str = "items", **values: Any) -> list[Any]:
        """All pages, up to a limit. `key` is where the list is, if it is not the whole answer."""
        found = []
        url = REPOSITORY + path + "{?per_page}"
        filled = self._filled({**values, "per_page": "100"})
        async for each in self._api.getiter(url, filled, iterable_key=key):
            found.append(each)
            if len(found) >= MOST_ITEMS:
                break
        return found

    async def post(self, path: str, body: Mapping[str, Any], **values: Any) -> dict[str, Any]:
        found: dict[str, Any] = await self._api.post(REPOSITORY + path, self._filled(values), data=body)
        return found

    async def patch(self, path: str, body: Mapping[str, Any], **values: Any) -> dict[str, Any]:
        found: dict[str, Any] = await self._api.patch(REPOSITORY + path, self._filled(values), data=body)
        return found

    async def put(self, path: str, body: Mapping[str, Any], **values: Any) -> dict[str, Any]:
        found: dict[str, Any] = await self._api.put(REPOSITORY + path, self._filled(values), data=body)
        return found

    async def graphql(self, query: str, **values: Any) -> Any:
        return await self._api.graphql(query, endpoint=self._api.graphql_url, **values)

    def _filled(self, values: Mapping[str, Any]) -> dict[str, str]:
        return {**self._values, **{name: str(value) for name, value in values.items()}}

    async def text(self, path: str, most: int, **values: Any) -> str:
        """The end of a text that GitHub keeps elsewhere, as it does with logs."""
        return await self._api.text_behind(REPOSITORY + path, self._filled(values), most)
