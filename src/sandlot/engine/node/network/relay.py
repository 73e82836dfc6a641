"""The relays of one slot, together: opened with the slot, told the policy, closed with it."""

from __future__ import annotations

from sandlot.engine.core.network_policy import Rules
from sandlot.engine.node.network.accepting import Budget
from sandlot.engine.node.network.dialer import Dialer
from sandlot.engine.node.network.dns import NameRelay
from sandlot.engine.node.network.egress import EgressRelay
from sandlot.engine.node.network.flows import FlowLog
from sandlot.engine.node.network.leaves import Ask, Leaves
from sandlot.engine.node.network.resolver import Resolver
from sandlot.engine.node.network.slot_plan import DNS_PORT
from sandlot.engine.node.network.sockets import Listeners

_QUERIES_AT_ONCE = 1024
_CONNECTIONS_AT_ONCE = 2048


class Common:
    """What the relays of all slots share."""

    def __init__(self, resolver: Resolver, ask: Ask) -> None:
        """`ask`: for certificates of names whose connections are opened."""
        self.resolver = resolver
        self.queries = Budget(_QUERIES_AT_ONCE)
        self.connections = Budget(_CONNECTIONS_AT_ONCE)
        self.dialer = Dialer(resolver)
        self.leaves = Leaves(ask)


class Relay:
    def __init__(self, slot: int, listeners: Listeners, common: Common) -> None:
        self._listeners, self.flows = listeners, FlowLog()
        self._names = NameRelay(listeners.dns_udp, listeners.dns_tcp, common.resolver, common.queries)
        self._names.refused = self._name_refused
        self._egress = EgressRelay(slot, listeners.egress, common, self.flows)

    def enforce(self, rules: Rules) -> None:
        self._names.rules = rules
        self._egress.enforce(rules)

    def _name_refused(self, name: str) -> None:
        self.flows.deny(name, DNS_PORT, "the name is not allowed by the network policy")

    async def close(self) -> None:
        """Also lets go of the namespace: a socket would keep it alive after its name is gone."""
        await self._names.close()
        await self._egress.close()
        self._listeners.close()
