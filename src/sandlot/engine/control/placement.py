"""Placement: which node a new machine goes to. A scheduler is a pure function over records, so that it can be replaced and tested alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sandlot.engine.core.errors import NoCapacity, Unavailable
from sandlot.engine.core.model import NodeStatus, Template
from sandlot.program import SANDLOT

Scheduler = Callable[[Template, Sequence[NodeStatus]], NodeStatus]


def emptiest(template: Template, nodes: Sequence[NodeStatus]) -> NodeStatus:
    """The node that has the template's state or layers; among those, the one with the most memory per machine."""
    usable = [node for node in nodes if node.is_healthy and not node.is_draining]
    if template.node is not None:
        usable = [node for node in usable if node.name == template.node]
        if not usable:
            raise Unavailable(f"{template.name!r} is on node {template.node!r}, which this server does not have")
    if not usable:
        raise NoCapacity(f"could not place a sandbox: this server has no node that works; check `{SANDLOT} doctor`")
    return max(usable, key=lambda node: (_has_files(node, template), node.memory_mb / (node.machines + 1)))


def _has_files(node: NodeStatus, template: Template) -> bool:
    if template.checkpoint is not None:
        return template.checkpoint in node.checkpoints
    return node.layers.issuperset(template.layers)
