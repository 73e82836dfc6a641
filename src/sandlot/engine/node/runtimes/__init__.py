"""The table of runtimes: a name, and the class that starts and stops machines in that way. Adding one is adding a row."""

from __future__ import annotations

from collections.abc import Mapping

from sandlot.engine.node.runtimes.container import Container
from sandlot.engine.node.runtimes.gvisor import GVisor

RUNTIMES: Mapping[str, type[GVisor] | type[Container]] = {
    "gvisor": GVisor,
    "container": Container,
}
