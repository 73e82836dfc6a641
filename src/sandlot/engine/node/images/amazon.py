"""Signs in to Amazon's registries: trades an access key for the name and password that the registry itself takes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from sandlot import bounded_json
from sandlot.engine.core.errors import StepFailed
from sandlot.engine.core.model import AmazonLogin, RegistryLogin

SERVICE = "ecr"
TARGET = "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"
ANSWER_LIMIT = 1 << 20
_REGION = re.compile(r"[a-z]{2,4}(?:-[a-z]{2,12}){1,3}-\d{1,2}")
_REGISTRY = re.compile(r"[a-z0-9.-]+\.amazonaws\.com(?:\.cn)?")


def is_registry(host: str) -> bool:
    return _REGISTRY.fullmatch(host) is not None


def address(login: AmazonLogin) -> str:
    """Where keys of this region are traded."""
    if not _REGION.fullmatch(login.region):
        raise StepFailed(f"{login.region[:40]!r} is not a region of Amazon's; it looks like us-east-1")
    return f"https://api.ecr.{login.region}.amazonaws.com{'.cn' if login.region.startswith('cn-') else ''}/"


async def sign_in(
    session: aiohttp.ClientSession, login: AmazonLogin, url: str, proxy: str | None = None
) -> RegistryLogin:
    """Raises `StepFailed` if the key is refused, without repeating it."""
    body = b"{}"
    headers = {
        "host": urlsplit(url).netloc,
        "content-type": "application/x-amz-json-1.1",
        "x-amz-date": datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ"),
        "x-amz-target": TARGET,
    }
    sent = {**headers, "authorization": authorization(login, "POST", url, headers, body, SERVICE)}
    async with session.post(url, data=body, headers=sent, allow_redirects=False, proxy=proxy) as reply:
        answer = await _answer(reply)
        if reply.status != 200:
            said = str(answer.get("message") or answer.get("__type") or f"it answered {reply.status}")
            raise StepFailed(f"Amazon's registry refuses the access key: {said[:300]}")
    try:
        token = base64.b64decode(answer["authorizationData"][0]["authorizationToken"]).decode()
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise StepFailed("Amazon's registry took the access key and gave no password") from error
    name, _, password = token.partition(":")
    return RegistryLogin(username=name, password=password)


async def _answer(reply: aiohttp.ClientResponse) -> dict[str, Any]:
    body = bytearray()
    async for chunk in reply.content.iter_chunked(1 << 16):
        body += chunk
        if len(body) > ANSWER_LIMIT:
            raise StepFailed("Amazon's sign-in gave an answer that is too large")
    try:
        answer = bounded_json.loads(bytes(body), most_bytes=ANSWER_LIMIT)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def authorization(
    login: AmazonLogin, method: str, url: str, headers: Mapping[str, str], body: bytes, service: str
) -> str:
    """Amazon's signature, version 4, over these headers (in lower case, with x-amz-date among them) and the body."""
    at = headers["x-amz-date"]
    scope = f"{at[:8]}/{login.region}/{service}/aws4_request"
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name].strip()}\n" for name in sorted(headers))
    request = "\n".join((method, urlsplit(url).path or "/", "", lines, names, hashlib.sha256(body).hexdigest()))
    text = "\n".join(("AWS4-HMAC-SHA256", at, scope, hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{login.secret_access_key}".encode()
    for part in (at[:8], login.region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    return f"AWS4-HMAC-SHA256 Credential={login.access_key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
