"""The door into sandboxes: a reverse proxy for HTTP and WebSockets that streams both ways and keeps nothing."""

from sandlot.engine.edge.app import Edge
from sandlot.engine.edge.passage import SandboxGone

__all__ = ["Edge", "SandboxGone"]
