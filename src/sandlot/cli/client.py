"""The CLI as a client: finds the running server of an instance and points the official SDK at it."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sandlot.cli.output import Failure
from sandlot.program import SANDLOT
from sandlot.server import instance

if TYPE_CHECKING:
    from e2b import Sandbox

    from sandlot.recipes.connection import Connection
    from sandlot.settings import Settings

SYSTEM_CAS = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem")


class Refused(Failure):
    """The server said no. `code` is the HTTP status."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def running(settings: Settings) -> instance.Facts:
    """The server of this instance. Raises `Failure` with the command that starts it."""
    try:
        facts = instance.facts(settings.data_dir)
    except PermissionError as error:
        raise Failure(f"{error.filename} belongs to another user; use sudo: sudo {SANDLOT} ...") from error
    if facts is None:
        raise Failure(f"no server runs for {settings.data_dir}. Start it: {start_command(settings)}")
    return facts


def start_command(settings: Settings) -> str:
    chosen = instance_option(settings)
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}{SANDLOT} up --detach{chosen}"


def instance_option(settings: Settings) -> str:
    """What a command line needs to mean this instance; nothing for the default one."""
    default = type(settings).model_fields["data_dir"].default
    return "" if settings.data_dir == default else f" --data-dir {shlex.quote(str(settings.data_dir))}"


def api_key(settings: Settings) -> str:
    path = settings.data_dir / "keys" / "default"
    try:
        return path.read_text().strip()
    except PermissionError as error:
        raise Failure(f"the API key in {path} is for its owner only; use sudo: sudo {SANDLOT} ...") from error
    except FileNotFoundError as error:
        raise Failure(f"there is no API key in {path}. The first start makes it: {start_command(settings)}") from error


def exports(settings: Settings) -> dict[str, str]:
    """What a client of this instance needs in its environment."""
    facts = running(settings)
    values = {
        "E2B_API_URL": facts.url,
        "E2B_API_KEY": api_key(settings),
        "E2B_DOMAIN": _domain(facts),
        "E2B_VOLUME_API_URL": facts.url,
    }
    if not facts.url.startswith("https:"):
        # SDKs that can send everything to one address, with headers, do without TLS and names; others use the domain.
        values["E2B_SANDBOX_URL"] = facts.url
    if facts.ca:
        bundle = str(ca_bundle(settings, Path(facts.ca)))
        names = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
        values |= dict.fromkeys(names, bundle)
    return values


def _domain(facts: instance.Facts) -> str:
    """What stands behind `{port}-{id}.` in the address of a sandbox's port."""
    domain = facts.domain or "localhost"
    port = facts.https_port or facts.port
    return domain if ":" in domain or port == 443 else f"{domain}:{port}"


def ca_bundle(settings: Settings, ca: Path) -> Path:
    """The CAs that are trusted here and ours in one file: clients take one, and must still trust everybody else."""
    bundle = settings.data_dir / "ca-bundle.pem"
    own = os.environ.get("SSL_CERT_FILE", "")
    places = (*([own] if own and Path(own) != bundle else []), *SYSTEM_CAS)
    system = next((Path(path).read_text() for path in places if Path(path).is_file()), "")
    content = system.rstrip("\n") + "\n" + ca.read_text()
    if not bundle.exists() or bundle.read_text() != content:
        temporary = bundle.with_suffix(".tmp")
        temporary.write_text(content)
        temporary.chmod(0o644)
        temporary.rename(bundle)
    return bundle


def absolute(settings: Settings, url: str) -> str:
    """Addresses of this server itself come without its name, which depends on who asks."""
    return running(settings).url + url if url.startswith("/") else url


def is_healthy(facts: instance.Facts, timeout_s: float = 5) -> bool:
    try:
        with _opener(facts).open(f"{facts.url}/health", timeout=timeout_s) as answer:
            return bool(answer.status < 300)
    except (OSError, urllib.error.URLError):
        return False


def sdk(settings: Settings) -> type[Sandbox]:
    """The official SDK's `Sandbox`, pointed at this instance the way `env` points anybody's."""
    values = exports(settings)
    for name in ("E2B_SANDBOX_URL", "E2B_DEBUG", "E2B_HTTP_VERSION"):
        os.environ.pop(name, None)
    plain = "E2B_SANDBOX_URL" in values  # then nothing is encrypted, and authorities are slow to load
    os.environ.update({name: value for name, value in values.items() if name.startswith("E2B_") or not plain})
    from e2b import Sandbox

    return Sandbox


def connection(settings: Settings) -> Connection:
    """What builds of templates reach this instance with. Certificates alone go through the environment: the SDK has no other way."""
    from sandlot.recipes.connection import Connection

    facts, values = running(settings), exports(settings)
    if "E2B_SANDBOX_URL" not in values:
        os.environ.update({name: value for name, value in values.items() if not name.startswith("E2B_")})
    os.environ.pop("E2B_SANDBOX_URL", None)
    return Connection(
        api_url=values["E2B_API_URL"],
        api_key=values["E2B_API_KEY"],
        domain=values["E2B_DOMAIN"],
        sandbox_url=values.get("E2B_SANDBOX_URL"),
        ca=Path(facts.ca) if facts.ca else None,
    )


def get(settings: Settings, path: str) -> Any:
    """Ask the API for a record or a list. Raises `Failure` with the server's own words."""
    return _ask(settings, path)[0]


def send(settings: Settings, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
    """Change something through the API. Raises `Refused` with the server's own words."""
    return _ask(settings, path, method=method, body=body, headers=headers or {})[0]


@contextlib.contextmanager
def opened(
    settings: Settings, path: str, *, timeout_s: float, headers: Mapping[str, str] | None = None
) -> Iterator[IO[bytes]]:
    """An answer to be read as it comes. Raises `Refused`, and `OSError` if the server is not there or falls silent."""
    facts = running(settings)
    request = urllib.request.Request(facts.url + path, headers={"X-API-KEY": api_key(settings), **(headers or {})})
    try:
        answer = _opener(facts).open(request, timeout=timeout_s)
    except urllib.error.HTTPError as error:
        raise Refused(_message(error), error.code) from error
    with answer:
        yield answer


def sandboxes(settings: Settings) -> list[dict[str, Any]]:
    return rows(settings, "/v2/sandboxes")


def rows(settings: Settings, path: str) -> list[dict[str, Any]]:
    """All of a list, page by page."""
    found: list[dict[str, Any]] = []
    token: str | None = ""
    while token is not None:
        query = urllib.parse.urlencode({"limit": 100} | ({"nextToken": token} if token else {}))
        page, token = _ask(settings, f"{path}?{query}")
        found += page
    return found


def end_all(settings: Settings) -> int:
    """Kill every sandbox, several at a time; returns how many there were."""
    from concurrent.futures import ThreadPoolExecutor

    kill = sdk(settings).kill
    ids = [row["sandboxID"] for row in sandboxes(settings)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(kill, ids))
    return len(ids)


def template_name(row: dict[str, Any]) -> str:
    return str(next(iter(row.get("names") or row.get("aliases") or []), row["templateID"]))


def _ask(
    settings: Settings, path: str, *, method: str = "GET", body: Any = None, headers: Mapping[str, str] = {}
) -> tuple[Any, str | None]:
    facts = running(settings)
    given = {"X-API-KEY": api_key(settings), "Content-Type": "application/json", **headers}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(facts.url + path, headers=given, data=data, method=method)
    try:
        with _opener(facts).open(request, timeout=60) as answer:
            content = answer.read()
            return json.loads(content) if content else None, answer.headers.get("x-next-token") or None
    except urllib.error.HTTPError as error:
        raise Refused(_message(error), error.code) from error
    except (OSError, urllib.error.URLError) as error:
        raise Failure(f"the server at {facts.url} does not answer ({error}). `{SANDLOT} status` looks at it") from error


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(65536))["message"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered {error.code} to {urllib.parse.urlsplit(error.url).path}"


def _opener(facts: instance.Facts) -> urllib.request.OpenerDirector:
    """Straight to the server: proxies are for the world outside this machine."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if facts.url.startswith("https:"):
        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=facts.ca)))
    return urllib.request.build_opener(*handlers)
