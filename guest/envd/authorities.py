"""Certificate authorities that the operator adds to every sandbox: in the system's store, and for programs that have their own."""

from __future__ import annotations

import os

from envd import logs

ADDED = "/usr/local/share/ca-certificates/sandlot.crt"  # where Debian and Alpine look when the store is made anew
STORES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
_WHOLE = (
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "GIT_SSL_CAINFO",
)  # these replace what a program knows
_LIMIT = 4 << 20


def take(bundle: str, root: str = "") -> dict[str, str]:
    """Have these trusted; returns the variables for commands. What cannot be written is logged, and not named."""
    content = bundle.strip() + "\n"
    variables: dict[str, str] = {}
    try:
        if _read(root + ADDED) != content:
            _write(root + ADDED, content)
        variables["NODE_EXTRA_CA_CERTS"] = ADDED
        store = next((path for path in STORES if os.path.isfile(root + path)), STORES[0])
        known = _read(root + store)
        if content not in known:
            _write(root + store, known + content)
        variables.update(dict.fromkeys(_WHOLE, store))
    except (OSError, ValueError) as error:
        logs.report("the operator's certificate authorities could not be written", error)
    return variables


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_LIMIT)
    except FileNotFoundError:
        return ""
    return text if not text or text.endswith("\n") else text + "\n"


def _write(path: str, content: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    part = f"{path}.part"
    with open(part, "w", encoding="utf-8") as file:
        file.write(content)
    os.chmod(part, 0o644)
    os.replace(part, path)
