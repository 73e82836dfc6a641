"""The seams: what the engine asks of hosts, stores and clocks, as small protocols. Adapters implement them, tests fake them."""

from sandlot.engine.core.ports.builds import BuildRunner, Images, Output, Uploads
from sandlot.engine.core.ports.clock import Clock
from sandlot.engine.core.ports.network import Network
from sandlot.engine.core.ports.node import Node, NodeHost, NodeMachines, NodeProxy, NodeSnapshots
from sandlot.engine.core.ports.runtime import Capturing, Freezing, LayerExporting, LimitReporting, Renaming, Runtime
from sandlot.engine.core.ports.store import (
    AccessStore,
    BuildStore,
    EgressStore,
    HistoryStore,
    SandboxStore,
    SecretStore,
    TagStore,
    TemplateStore,
)

__all__ = [
    "AccessStore",
    "BuildRunner",
    "BuildStore",
    "Capturing",
    "Clock",
    "EgressStore",
    "Freezing",
    "HistoryStore",
    "Images",
    "LayerExporting",
    "LimitReporting",
    "Network",
    "Node",
    "NodeHost",
    "NodeMachines",
    "NodeProxy",
    "NodeSnapshots",
    "Output",
    "Renaming",
    "Runtime",
    "SandboxStore",
    "SecretStore",
    "TagStore",
    "TemplateStore",
    "Uploads",
]
