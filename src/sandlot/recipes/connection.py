"""How a server is reached: its address and a key, and the few calls that the official SDK does not have."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from sandlot.recipes.recipe import RecipeFailed

REQUEST_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Given to the SDK with every call, never through the environment."""

    api_url: str
    api_key: str = field(repr=False)
    domain: str
    sandbox_url: str | None = None  # one address for the traffic of all sandboxes; without it, a host name for each
    ca: Path | None = None  # of the server's certificate; the SDK itself trusts what its process trusts

    def params(self) -> dict[str, Any]:
        return {
            "api_url": self.api_url,
            "api_key": self.api_key,
            "domain": self.domain,
            "sandbox_url": self.sandbox_url,
            "debug": False,
            "http_version": "1.1",
        }

    async def publish(self, template_id: str) -> None:
        """Let every team of the server use a template. Raises `RecipeFailed`."""
        secure = self.api_url.startswith("https:")  # authorities are slow to load, and plain HTTP needs none
        verify = ssl.create_default_context(cafile=self.ca) if secure else False
        # Straight to the server: proxies are for the world outside.
        async with httpx.AsyncClient(verify=verify, trust_env=False, timeout=REQUEST_S) as client:
            url = f"{self.api_url}/v2/templates/{template_id}"
            try:
                answer = await client.patch(url, headers={"X-API-KEY": self.api_key}, json={"public": True})
            except httpx.HTTPError as error:
                raise RecipeFailed(f"the template {template_id} could not be published: {error}") from error
        if answer.is_error:
            raise RecipeFailed(f"the template {template_id} could not be published: {answer.text[:300]}")
