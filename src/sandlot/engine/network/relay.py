"""The relays of one slot, together: opened with the slot, told the policy, closed with it."""

from __future__ import annotations

from sandlot.engine.network.dns import NameRelay
from sandlot.engine.network.egress import EgressRelay
from sandlot.engine.network.plan import Place
from sandlot.engine.network.resolver import Resolver
from sandlot.engine.network.sockets import Listeners, listen
from sandlot.engine.policy import Rules


class Relay:
    def __init__(self, listeners: Listeners, resolver: Resolver) -> None:
        self._listeners = listeners
        self._names = NameRelay(listeners.dns_udp, listeners.dns_tcp, resolver)
        self._egress = EgressRelay(listeners.egress, resolver)

    @classmethod
    def listen(cls, place: Place, resolver: Resolver) -> Relay:
        return cls(listen(place), resolver)

    def enforce(self, rules: Rules) -> None:
        self._names.rules = rules
        self._egress.enforce(rules)

    async def close(self) -> None:
        """Also lets go of the namespace: a socket would keep it alive after its name is gone."""
        await self._names.close()
        await self._egress.close()
        self._listeners.close()
