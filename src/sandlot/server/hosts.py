"""Host names as requests carry them."""

from __future__ import annotations


def hostname(host: str) -> str:
    """The name without port, brackets, case or a final dot."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")
