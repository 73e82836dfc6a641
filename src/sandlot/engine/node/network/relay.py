"""The relays of one slot, together: opened with the slot, told the policy, closed with it."""

from __future__ import annotations

from sandlot.engine.core.network_policy import Rules
from sandlot.engine.node.network.accepting import Budget
from sandlot.engine.node.network.dns import NameRelay
from sandlot.engine.node.network.egress import EgressRelay
from sandlot.engine.node.network.resolver import Resolver
from sandlot.engine.node.network.sockets import Listeners

_QUERIES_AT_ONCE = 1024
_CONNECTIONS_AT_ONCE = 2048


class Common:
    """What the relays of all slots share."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.queries = Budget(_QUERIES_AT_ONCE)
        self.connections = Budget(_CONNECTIONS_AT_ONCE)


class Relay:
    def __init__(self, listeners: Listeners, common: Common) -> None:
        self._listeners = listeners
        self._names = NameRelay(listeners.dns_udp, listeners.dns_tcp, common.resolver, common.queries)
        self._egress = EgressRelay(listeners.egress, common.resolver, common.connections)

    def enforce(self, rules: Rules) -> None:
        self._names.rules = rules
        self._egress.enforce(rules)

    async def close(self) -> None:
        """Also lets go of the namespace: a socket would keep it alive after its name is gone."""
        await self._names.close()
        await self._egress.close()
        self._listeners.close()
