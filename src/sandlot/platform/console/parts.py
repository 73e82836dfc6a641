"""What the console's routes are given."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandlot.platform.console.bundle import Bundle
from sandlot.platform.console.logins import Logins
from sandlot.platform.console.origins import ConsoleHosts
from sandlot.platform.console.sandboxes import ConsoleSandboxes


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    logins: Logins
    sandboxes: ConsoleSandboxes
    hosts: ConsoleHosts = field(default_factory=ConsoleHosts)
    bundle: Bundle = field(default_factory=Bundle)
    frames: tuple[str, ...] = ()  # whose pages the console may show inside its own
