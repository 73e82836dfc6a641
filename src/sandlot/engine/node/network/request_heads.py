"""Heads of HTTP/1 requests: read strictly, and written again with the headers that a rule sets."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass

from sandlot.engine.core.header_rules import PLACEHOLDER, filled, secret_names
from sandlot.engine.core.model import HeaderRule

END = b"\r\n\r\n"
_REQUEST = re.compile(rb"([A-Z]{1,32}) (\S+) HTTP/1\.[01]")
# What a lenient server could read as another header than we do (folds, bare newlines, `Host :`) is refused.
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\r\n\0]*)")
_TARGET = re.compile(rb"(?i)[a-z][a-z0-9+.-]*://([^/?#]*)")
_BODY = (b"content-length", b"transfer-encoding")


class Unreadable(ValueError):
    """The bytes are no request that can be passed on, or name nobody."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    method: bytes
    line: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    name: str  # of the host that it is for

    def said(self, key: bytes) -> list[bytes]:
        return [value.strip() for name, value in self.headers if name.lower() == key]

    @property
    def switches(self) -> bool:
        """It asks for a WebSocket."""
        wanted = [value.lower() for value in self.said(b"upgrade")]
        return self.method == b"GET" and wanted == [b"websocket"] and not any(map(self.said, _BODY))

    @property
    def body_size(self) -> int | None:
        """How long its body is; None: in chunks. Raises `Unreadable` where two servers could disagree about it."""
        lengths, codings = self.said(b"content-length"), self.said(b"transfer-encoding")
        if codings:
            if lengths or [each.lower() for each in codings] != [b"chunked"]:
                raise Unreadable("a body whose length is not clear")
            return None
        if not lengths:
            return 0
        if len(lengths) != 1 or not re.fullmatch(rb"\d{1,15}", lengths[0]):
            raise Unreadable("a body whose length is not clear")
        return int(lengths[0])

    def raw(self) -> bytes:
        return b"\r\n".join([self.line, *(name + b":" + value for name, value in self.headers)]) + END


@dataclass(frozen=True, slots=True)
class RewrittenHead:
    raw: bytes
    secrets: frozenset[str]  # names of those that are in it


def parse_head(head: bytes) -> RequestHead:
    """From the bytes before the empty line. Raises `Unreadable`."""
    line, *lines = head.split(b"\r\n")
    asked = _REQUEST.fullmatch(line)
    if not asked or asked[1] == b"CONNECT":
        raise Unreadable("not an HTTP/1 request")
    matches = [_HEADER.fullmatch(each) for each in lines]
    headers = tuple((match[1], match[2]) for match in matches if match)
    if len(headers) != len(lines):
        raise Unreadable("a malformed header")
    hosts = [value for name, value in headers if name.lower() == b"host"]
    if len(hosts) != 1:
        raise Unreadable("not exactly one Host")
    name = host_name(hosts[0].strip().rsplit(b":", 1)[0])
    target = _TARGET.match(asked[2])
    if target and host_name(re.sub(rb":\d*$", b"", target[1])) != name:
        raise Unreadable("a request target that is not its Host")
    return RequestHead(asked[1], line, headers, name)


def rewrite(head: RequestHead, rule: HeaderRule, secrets: Mapping[str, str]) -> RewrittenHead:
    """The head as the rule has it. Raises `KeyError` with the name of a secret that does not exist."""
    fixed = {name: value for name, value in rule.headers if not name.startswith(PLACEHOLDER)}
    stand_ins = [(name, value) for name, value in rule.headers if name.startswith(PLACEHOLDER)]
    stand_ins.sort(key=lambda each: len(each[0]), reverse=True)  # one may be the beginning of another
    used = set(fixed.values())
    replaced = {name.lower().encode() for name in fixed}
    headers = []
    for key, value in head.headers:
        if key.lower() in replaced:
            continue
        for stand_in, template in stand_ins:
            found = _put(key, value, stand_in.encode(), template, secrets)
            if found is not None:
                value = found
                used.add(template)
        headers.append((key, value))
    headers += [(name.encode(), b" " + filled(value, secrets).encode()) for name, value in fixed.items()]
    names = secret_names([HeaderRule(domain=rule.domain, headers=tuple(("", value) for value in used))])
    return RewrittenHead(RequestHead(head.method, head.line, tuple(headers), head.name).raw(), names)


def _put(key: bytes, value: bytes, stand_in: bytes, template: str, secrets: Mapping[str, str]) -> bytes | None:
    """The value with the secret in place of what stands for it, also inside a Basic login; None if it is not there."""
    if stand_in in value:
        return value.replace(stand_in, filled(template, secrets).encode())
    scheme, _, login = value.strip().partition(b" ")
    if key.lower() in (b"authorization", b"proxy-authorization") and scheme.lower() == b"basic":
        try:
            plain = base64.b64decode(login.strip(), validate=True)
        except binascii.Error:
            return None
        if stand_in in plain:
            plain = plain.replace(stand_in, filled(template, secrets).encode())
            return b" " + scheme + b" " + base64.b64encode(plain)
    return None


def host_name(raw: bytes) -> str:
    name = raw.decode("latin-1").lower().removesuffix(".")
    if not re.fullmatch(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*", name) or len(name) > 253:
        raise Unreadable("not a host name")
    return name
