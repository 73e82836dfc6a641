"""Placement: which node a new machine goes to. A scheduler is a pure function, so that it can be replaced and tested alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sandlot.engine.core.errors import NoCapacity
from sandlot.engine.core.model import Resources
from sandlot.engine.core.ports import Node

Scheduler = Callable[[Resources, Sequence[Node]], Node]


def first_node(resources: Resources, nodes: Sequence[Node]) -> Node:
    """The scheduler of a single host: there is one node, and it refuses by itself what does not fit."""
    if not nodes:
        raise NoCapacity("could not place a sandbox: this server has no node; check `./sandlot doctor`")
    return nodes[0]
