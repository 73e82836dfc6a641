"""Secrets that this project gives out stay out of its logs."""

from __future__ import annotations

import base64
import secrets

import pytest

from sandlot.server.telemetry import redact

TOOLS = f"slt_-_{base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip('=')}"


@pytest.mark.parametrize("secret", [f"slp_{secrets.token_hex(24)}", TOOLS, f"e2b_{secrets.token_hex(20)}"])
@pytest.mark.parametrize("text", ["a call with {}", "sandlot.key.{}", "/mcp/{}/x", "KEY_{}"])
def test_keys_of_the_platform_and_of_tools_are_not_logged(secret: str, text: str) -> None:
    assert secret[4:] not in redact(text.format(secret))
