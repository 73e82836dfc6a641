"""Proxies of browsers: rules become a PAC script, the one form in which Chromium takes several of them."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Sequence
from urllib.parse import urlsplit

from sandlot.platform.core.browsers import ProxyRule
from sandlot.platform.core.errors import InvalidRequest

_SCHEMES = {"http": "PROXY", "https": "HTTPS", "socks5": "SOCKS5", "socks4": "SOCKS"}
MAX_PATTERN = 1024
MOST_RULES = 20


def pac_option(rules: Sequence[ProxyRule]) -> str:
    """The option for Chromium. The first rule whose pattern fits a host counts. Raises `InvalidRequest`."""
    if len(rules) > MOST_RULES:
        raise InvalidRequest(f"a browser takes {MOST_RULES} proxies at most")
    lines = [_line(rule) for rule in rules]
    script = "function FindProxyForURL(url, host) {\n" + "".join(lines) + 'return "DIRECT";\n}\n'
    return f"--proxy-pac-url=data:application/x-ns-proxy-autoconfig;base64,{b64encode(script.encode()).decode()}"


def credentials(rules: Sequence[ProxyRule]) -> dict[str, tuple[str, str]]:
    """User and password by `host:port`."""
    return {
        _address(rule.server)[1]: (rule.username, rule.password or "")
        for rule in rules
        if rule.server is not None and rule.username is not None
    }


def _line(rule: ProxyRule) -> str:
    way = "DIRECT" if rule.server is None else " ".join(_address(rule.server))
    answer = f"return {json.dumps(way)};\n"
    if rule.pattern is None:
        return answer
    if len(rule.pattern) > MAX_PATTERN:
        raise InvalidRequest(f"a proxy's domainPattern has {MAX_PATTERN} characters at most")
    try:
        re.compile(rule.pattern)
    except re.error as error:
        raise InvalidRequest(f"a proxy's domainPattern is no regular expression: {error}") from None
    return f"if (new RegExp({json.dumps(rule.pattern)}).test(host)) {answer}"


def _address(server: str) -> tuple[str, str]:
    """How a PAC script calls this proxy."""
    try:
        parts = urlsplit(server if "://" in server else f"http://{server}")
        kind, host, port = _SCHEMES.get(parts.scheme), parts.hostname, parts.port
    except ValueError:
        kind = host = port = None
    if kind is None or host is None or not re.fullmatch(r"[A-Za-z0-9._:-]{1,253}", host):
        raise InvalidRequest("a proxy's server must be an address such as http://proxy.example.com:3128")
    shown = f"[{host}]" if ":" in host else host
    return kind, f"{shown}:{port or {'HTTPS': 443, 'PROXY': 80}.get(kind, 1080)}"
