"""What creating, suspending and snapshotting share."""

from __future__ import annotations

from dataclasses import dataclass

from sandlot.engine.control.admission import Admission
from sandlot.engine.control.end import Ending
from sandlot.engine.control.inflight import InFlight
from sandlot.engine.control.lookup import SandboxLookup
from sandlot.engine.control.nodes import Nodes
from sandlot.engine.control.sandbox_states import SandboxStates
from sandlot.engine.core.ports import Clock, TemplateStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlParts:
    """What creating and suspending share: the one writer of rows, who moves them, and where their machines are."""

    states: SandboxStates
    inflight: InFlight
    lookup: SandboxLookup
    nodes: Nodes
    admission: Admission
    ending: Ending
    templates: TemplateStore
    clock: Clock
