"""Pulls images from OCI registries: manifests, credentials, layers; everything is verified by its digest before it is used."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import platform
import re
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from sandlot import bounded_json
from sandlot.addresses import is_public
from sandlot.engine.core.errors import StepFailed, Unavailable
from sandlot.engine.core.model import AmazonLogin, Image, RegistryLogin
from sandlot.engine.core.ports import Output
from sandlot.engine.node.images import amazon, importing
from sandlot.engine.node.images.layers import Layers
from sandlot.engine.node.images.references import DEFAULT_REGISTRY, ImageReference

MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
MANIFEST_LIMIT = 4 << 20
MOST_REDIRECTS = 5
UNREACHABLE_S = 60  # how long a registry that did not answer is left alone
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


class _GlobalOnly(AbstractResolver):
    """Resolves names; those of private places are refused unless the operator named the registry."""

    def __init__(self, trusted: frozenset[str]) -> None:
        self._resolver, self._trusted = ThreadedResolver(), trusted

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        if not {host, f"{host}:{port}"} & self._trusted:
            found = [each for each in found if is_public(each["host"])]
        if not found:
            raise OSError("it is at a private address (SANDLOT_TRUSTED_REGISTRIES names those that may be used)")
        return found

    async def close(self) -> None:
        await self._resolver.close()


def proxy_for(url: str) -> str | None:
    """The proxy that the environment names. aiohttp's own reading of it would send passwords from root's netrc, too."""
    parts, proxies = urlsplit(url), getproxies()
    return None if proxy_bypass(parts.netloc, proxies) else proxies.get(parts.scheme)


@dataclass(slots=True)
class _Visit:
    """One pull: the registry, and what it asked for so far."""

    base: str
    login: RegistryLogin | None
    authorization: str | None = None
    scopes: dict[str, str] = field(default_factory=dict)


class Registries:
    def __init__(
        self,
        layers: Layers,
        *,
        trusted: Sequence[str] = (),
        amazon_endpoint: str
        | None = None,  # where to sign in to Amazon's registries, instead of at Amazon's own addresses
        most_bytes: int = 20 << 30,
    ) -> None:
        self._layers, self._most_bytes, self._amazon = layers, most_bytes, amazon_endpoint
        self._trusted = frozenset((*trusted, *((urlsplit(amazon_endpoint).netloc,) if amazon_endpoint else ())))
        self._session: aiohttp.ClientSession | None = None
        self._unreachable: dict[str, tuple[float, str]] = {}

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(resolver=_GlobalOnly(self._trusted)),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=15, sock_read=60),
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def pull(self, reference: ImageReference, login: RegistryLogin | AmazonLogin | None, output: Output) -> Image:
        """The image as a layer. Raises `Unavailable` if the registry cannot be reached, `StepFailed` if it says no."""
        failed_at, why = self._unreachable.get(reference.registry, (-1e9, ""))
        if time.monotonic() - failed_at < UNREACHABLE_S:
            raise Unavailable(why)
        base = self._base(reference.registry)
        if isinstance(login, AmazonLogin):
            login = await self._sign_in(reference, login)
        visit = _Visit(base=base, login=login)
        try:
            return await self._pull(reference, visit, output)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            why = f"the registry {reference.registry} cannot be reached ({_short(error)})"
            if isinstance(error, aiohttp.ClientConnectorError):
                self._unreachable[reference.registry] = (time.monotonic(), why)
            raise Unavailable(why) from error

    async def _sign_in(self, reference: ImageReference, login: AmazonLogin) -> RegistryLogin:
        assert self._session is not None, "open() first"
        if not amazon.is_registry(reference.registry) and reference.registry not in self._trusted:
            raise StepFailed(
                f"{reference.registry} is not one of Amazon's registries, so it is not told their password"
            )
        try:
            url = self._amazon or amazon.address(login)
            return await amazon.sign_in(self._session, login, url, proxy=proxy_for(url))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Unavailable(f"Amazon's sign-in for registries cannot be reached ({_short(error)})") from error

    def _base(self, registry: str) -> str:
        host = "registry-1.docker.io" if registry == DEFAULT_REGISTRY else registry
        name = urlsplit(f"//{host}").hostname or ""
        with contextlib.suppress(ValueError):
            if not is_public(name) and host not in self._trusted:
                raise StepFailed(
                    f"the registry {registry} is at a private address; an operator can allow it with SANDLOT_TRUSTED_REGISTRIES"
                )
        plain = host in self._trusted and (name == "localhost" or name.startswith("127."))
        return f"{'http' if plain else 'https'}://{host}/v2/"

    async def _pull(self, reference: ImageReference, visit: _Visit, output: Output) -> Image:
        repository = reference.repository
        manifest, digest = await self._manifest(visit, repository, reference.wanted, reference.digest)
        if "manifests" in manifest:
            chosen = _for_this_machine(manifest["manifests"], str(reference))
            manifest, _ = await self._manifest(visit, repository, chosen, chosen)
        config_digest = _digest_of(manifest.get("config"))
        config = _json(await self._small_blob(visit, repository, config_digest))
        if not isinstance(config, dict):
            raise StepFailed("the image has a configuration that cannot be read")
        layers = [_digest_of(each) for each in manifest.get("layers", [])]
        name = importing.layer_name(config_digest, layers)
        if self._layers.has(name):
            description = f"{reference}: already here ({digest[:19]})"
        else:
            await self._fetch(visit, repository, name, layers, output)
            description = f"{reference}: pulled from its registry ({digest[:19]}, {len(layers)} layers)"
        return importing.as_image(description, name, config)

    async def _fetch(self, visit: _Visit, repository: str, name: str, layers: Sequence[str], output: Output) -> None:
        left = self._most_bytes
        with tempfile.TemporaryDirectory(prefix=".pull-", dir=importing.scratch(self._layers)) as scratch:
            files = []
            for number, digest in enumerate(layers, 1):
                path = Path(scratch) / str(number)
                size = await self._blob_to(visit, repository, digest, path, left)
                left -= size
                output(f"layer {number} of {len(layers)}: {digest[7:19]}, {size / 1e6:.1f} MB", "info")
                files.append(await importing.readable(path, self._most_bytes))
            await importing.unpack(self._layers, name, files, self._most_bytes)

    async def _manifest(
        self, visit: _Visit, repository: str, wanted: str, digest: str | None
    ) -> tuple[dict[str, Any], str]:
        async with self._get(
            visit, repository, f"{repository}/manifests/{wanted}", {"Accept": ", ".join(MANIFESTS)}
        ) as reply:
            body = await _bounded(reply, MANIFEST_LIMIT)
        found = f"sha256:{hashlib.sha256(body).hexdigest()}"
        if digest is not None and found != digest:
            raise StepFailed(f"the registry gave another manifest than {digest}: its digest is {found}")
        manifest = _json(body)
        if not isinstance(manifest, dict) or ("manifests" not in manifest and "config" not in manifest):
            raise StepFailed("the image has a manifest of a kind that is not supported (Docker schema 1?)")
        return manifest, found

    async def _small_blob(self, visit: _Visit, repository: str, digest: str) -> bytes:
        async with self._get(visit, repository, f"{repository}/blobs/{digest}") as reply:
            body = await _bounded(reply, MANIFEST_LIMIT)
        if f"sha256:{hashlib.sha256(body).hexdigest()}" != digest:
            raise StepFailed(f"the registry gave something else than {digest}")
        return body

    async def _blob_to(self, visit: _Visit, repository: str, digest: str, path: Path, limit: int) -> int:
        sha, size = hashlib.sha256(), 0
        async with self._get(visit, repository, f"{repository}/blobs/{digest}") as reply:
            with path.open("xb") as file:
                async for chunk in reply.content.iter_chunked(1 << 20):
                    size += len(chunk)
                    if size > limit:
                        raise StepFailed(f"the image is larger than the {self._most_bytes >> 30} GiB this server takes")
                    sha.update(chunk)
                    await asyncio.to_thread(file.write, chunk)
        if f"sha256:{sha.hexdigest()}" != digest:
            raise StepFailed(f"the registry gave a layer that is not {digest}")
        return size

    @contextlib.asynccontextmanager
    async def _get(
        self, visit: _Visit, repository: str, path: str, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer that is fine, after whatever the registry wants to know, and wherever it sends us."""
        assert self._session is not None, "open() first"
        url = urljoin(visit.base, path)
        for _ in range(MOST_REDIRECTS):
            own = urlsplit(url).netloc == urlsplit(visit.base).netloc
            sent = {
                **(headers or {}),
                **({"Authorization": visit.authorization} if own and visit.authorization else {}),
            }
            async with self._session.get(url, headers=sent, allow_redirects=False, proxy=proxy_for(url)) as reply:
                if reply.status == 401 and own and await self._authorize(visit, repository, reply):
                    continue
                if reply.status in (301, 302, 303, 307, 308):
                    url = self._elsewhere(url, reply.headers.get("Location", ""))
                    continue
                _check_status(reply.status, path)
                yield reply
                return
        raise StepFailed("the registry sent us around in circles, or does not take the credentials")

    def _elsewhere(self, url: str, location: str) -> str:
        target = urljoin(url, location)
        parts = urlsplit(target)
        if parts.scheme not in ("https", "http") or (parts.scheme == "http" and urlsplit(url).scheme == "https"):
            raise StepFailed("the registry sent us to an address that is not safe")
        with contextlib.suppress(ValueError):
            if not is_public(parts.hostname or "") and parts.netloc not in self._trusted:
                raise StepFailed("the registry sent us to a private address")
        return target

    async def _authorize(self, visit: _Visit, repository: str, reply: aiohttp.ClientResponse) -> bool:
        """Get what a 401 asks for; False if we had it already and it was not enough."""
        challenge = reply.headers.get("WWW-Authenticate", "")
        scheme, _, rest = challenge.partition(" ")
        basic = _basic(visit.login) if visit.login else None
        if visit.authorization is not None:
            raise StepFailed("the registry refuses these credentials, or the image does not exist")
        if scheme.lower() == "basic":
            if basic is None:
                raise StepFailed("the registry asks for credentials; give a username and a password")
            visit.authorization = basic
            return True
        asked = dict(_CHALLENGE.findall(rest))
        if scheme.lower() != "bearer" or "realm" not in asked:
            return False
        query = {"service": asked.get("service", ""), "scope": asked.get("scope") or f"repository:{repository}:pull"}
        realm = self._elsewhere(visit.base, asked["realm"])
        assert self._session is not None
        headers = {"Authorization": basic} if basic else {}
        asking = f"{realm}?{urlencode(query)}"
        async with self._session.get(asking, headers=headers, allow_redirects=False, proxy=proxy_for(asking)) as answer:
            if answer.status != 200:
                raise StepFailed("the registry refuses these credentials, or the image does not exist")
            said = _json(await _bounded(answer, 1 << 20))
        token = (said.get("token") or said.get("access_token")) if isinstance(said, dict) else None
        visit.authorization = f"Bearer {token}"
        return True


def _check_status(status: int, path: str) -> None:
    if status == 404:
        raise StepFailed("the registry has no such image or tag")
    if status in (401, 403):
        raise StepFailed("the registry refuses access: the image does not exist, or needs (other) credentials")
    if status == 429:
        raise StepFailed("the registry says that this server asks too often; try again later, or give credentials")
    if status >= 500:
        raise Unavailable(f"the registry is out of order (it answered {status})")
    if status != 200:
        raise StepFailed(f"the registry answered {status} to {path[:200]}")


def _basic(login: RegistryLogin) -> str:
    return "Basic " + base64.b64encode(f"{login.username}:{login.password}".encode()).decode()


async def _bounded(reply: aiohttp.ClientResponse, limit: int) -> bytes:
    body = bytearray()
    async for chunk in reply.content.iter_chunked(1 << 16):
        body += chunk
        if len(body) > limit:
            raise StepFailed("the registry gave an answer that is too large")
    return bytes(body)


def _json(body: bytes) -> Any:
    try:
        return bounded_json.loads(body, most_bytes=MANIFEST_LIMIT)
    except ValueError as error:
        raise StepFailed("the registry gave an answer that cannot be read") from error


def _digest_of(part: object) -> str:
    digest = part.get("digest") if isinstance(part, dict) else None
    if not isinstance(digest, str) or not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise StepFailed("the image's manifest names something by a digest that cannot be checked")
    return digest


def _for_this_machine(manifests: object, name: str) -> str:
    wanted = ARCHITECTURES.get(platform.machine(), platform.machine())
    found = []
    for each in manifests if isinstance(manifests, list) else []:
        place = each.get("platform", {}) if isinstance(each, dict) else {}
        if place.get("os") == "linux" and place.get("architecture") == wanted:
            return _digest_of(each)
        found.append(f"{place.get('os')}/{place.get('architecture')}")
    raise StepFailed(f"{name} is not made for linux/{wanted}; it has: {', '.join(found[:10]) or 'nothing'}")


def _short(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name cannot be resolved"
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError):
        return "its certificate is not trusted here"
    if isinstance(error, TimeoutError):
        return "it does not answer"
    return (getattr(error, "strerror", None) or type(error).__name__)[:120]
