"""Header rules: what callers may ask for, which rule a host name falls under, and the secrets that its values name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from sandlot.engine.core.errors import InvalidRequest
from sandlot.engine.core.model import EgressProxy, HeaderRule

MAX_DOMAINS, MAX_DOMAIN, MAX_HEADERS, MAX_NAME, MAX_VALUE = 10, 128, 20, 64, 2048
MAX_LOGIN = 255
PLACEHOLDER = "SECRET_PLACEHOLDER_"
_SECRET = re.compile(r"\$\{e2b\.secrets\.([^{}]+)\}")
_REFERENCE = re.compile(r"\$\{e2b\.([^{}]*)\}?")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_DOMAIN = re.compile(r"(\*\.)?(?:(?!-)[a-z0-9_-]{1,63}(?<!-)\.)*(?!-)(?!\d+$)[a-z0-9_-]{1,63}(?<!-)")
# What decides where a request goes and where it ends is not for rules.
_FIXED = frozenset(
    ["connection", "content-length", "expect", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"]
)  # fmt: skip


def checked(rules: Mapping[str, Sequence[Mapping[str, str]]]) -> tuple[HeaderRule, ...]:
    """Rules from what a caller asks for: for each domain, at most one set of headers. Raises `InvalidRequest`."""
    if len(rules) > MAX_DOMAINS:
        raise InvalidRequest(f"rules has {len(rules)} domains; at most {MAX_DOMAINS} are allowed")
    found: dict[str, HeaderRule] = {}
    for entry, transforms in rules.items():
        domain = entry.lower().removesuffix(".")
        if len(domain) > MAX_DOMAIN or not _DOMAIN.fullmatch(domain):
            raise InvalidRequest(
                f"rules: {entry[:100]!r} is not a domain of at most {MAX_DOMAIN} characters; use a name like api.example.com or *.example.com"
            )
        if len(transforms) > 1:
            raise InvalidRequest(f"rules: {domain} has {len(transforms)} rules; at most 1 is allowed")
        if domain in found:
            raise InvalidRequest(f"rules: {domain} is there twice")
        headers = tuple((name, _checked(domain, name, value)) for each in transforms for name, value in each.items())
        if len(headers) > MAX_HEADERS:
            raise InvalidRequest(f"rules: {domain} sets {len(headers)} headers; at most {MAX_HEADERS} are allowed")
        if len({name.lower() for name, _ in headers}) != len(headers):
            raise InvalidRequest(f"rules: {domain} sets a header twice; names do not differ by case")
        found[domain] = HeaderRule(domain=domain, headers=headers)
    return tuple(found.values())


def _checked(domain: str, name: str, value: str) -> str:
    if len(name) > MAX_NAME or not _TOKEN.fullmatch(name):
        raise InvalidRequest(
            f"rules: {name[:100]!r} of {domain} is not a header's name of at most {MAX_NAME} characters"
        )
    if name.lower() in _FIXED or name.lower().startswith("proxy-"):
        raise InvalidRequest(f"rules: the header {name} of {domain} cannot be set by a rule")
    if len(value) > MAX_VALUE or _CONTROL.search(value):
        raise InvalidRequest(
            f"rules: the value of {name} of {domain} must have at most {MAX_VALUE} characters and no line breaks"
        )
    for reference in _REFERENCE.finditer(value):
        kind = reference[1].partition(".")[0]
        if kind == "identity":
            raise InvalidRequest(f"rules: {name} of {domain} names an identity token; this server has none yet")
        if not _SECRET.fullmatch(reference[0]):
            raise InvalidRequest(f"rules: {reference[0][:100]!r} means nothing here; use ${{e2b.secrets.NAME}}")
    return value


def checked_proxy(
    address: str,
    *,
    username: str | None = None,
    password: str | None = None,
    use_tls: bool = False,
    server_name: str | None = None,
    ca_cert: str | None = None,
) -> EgressProxy:
    """A SOCKS5 proxy from what a caller asks for. Raises `InvalidRequest`."""
    host, colon, port = address.rpartition(":")
    is_host = _DOMAIN.fullmatch(host.lower()) or re.fullmatch(r"\d{1,3}(\.\d{1,3}){3}", host)
    if not colon or not is_host or not re.fullmatch(r"\d{1,5}", port) or not 1 <= int(port) <= 65535:
        raise InvalidRequest(f"egressProxy: {address[:100]!r} is not an address like proxy.example.com:1080")
    if any(text is not None and not 1 <= len(text.encode()) <= MAX_LOGIN for text in (username, password)):
        raise InvalidRequest(f"egressProxy: username and password have 1 to {MAX_LOGIN} bytes")
    if password is not None and username is None:
        raise InvalidRequest("egressProxy: a password needs a username")
    if ca_cert is not None and "-----BEGIN CERTIFICATE-----" not in ca_cert:
        raise InvalidRequest("egressProxy: caCert holds no certificate (PEM)")
    return EgressProxy(
        host=host.lower(),
        port=int(port),
        username=username,
        password=password,
        use_tls=use_tls,
        server_name=server_name,
        ca_cert=ca_cert,
    )


def secret_names(rules: Iterable[HeaderRule]) -> frozenset[str]:
    return frozenset(name.lower() for rule in rules for _, value in rule.headers for name in _SECRET.findall(value))


def filled(value: str, secrets: Mapping[str, str]) -> str:
    """The value with secrets in place of their names. Raises `KeyError` with the name of one that is not there."""
    return _SECRET.sub(lambda match: secrets[match[1].lower()], value)


def rule_for(name: str, rules: Iterable[HeaderRule]) -> HeaderRule | None:
    """The rule of a host: its own before those of a pattern, and of these the longest."""
    host = name.lower().removesuffix(".")
    exact = [rule for rule in rules if rule.domain == host]
    below = [rule for rule in rules if rule.domain.startswith("*.") and host.endswith(rule.domain[1:])]
    return next(iter(exact), None) or max(below, key=lambda rule: len(rule.domain), default=None)
