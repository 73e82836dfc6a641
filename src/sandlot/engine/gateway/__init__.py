"""The door into sandboxes: a reverse proxy for HTTP and WebSockets that streams both ways and keeps nothing."""

from sandlot.engine.gateway.app import Gateway
from sandlot.engine.gateway.upstreams import SandboxGone

__all__ = ["Gateway", "SandboxGone"]
