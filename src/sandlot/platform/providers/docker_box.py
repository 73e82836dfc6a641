"""Acting in one container: through the daemon of the guest runtime inside it, with the same SDK as in every other sandbox."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from e2b import AsyncSandbox
from e2b.connection_config import ConnectionConfig
from packaging.version import Version

from sandlot.platform.core.model import PortAddress
from sandlot.platform.providers.docker_ports import ContainerPorts
from sandlot.platform.providers.e2b_box import E2BBox

REQUEST_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerDoor:
    """How the daemon in a container is reached."""

    container: str
    ports: ContainerPorts
    token: str = field(repr=False)
    envd_version: str

    def sandbox(self) -> AsyncSandbox:
        port = self.ports.open(self.container, ConnectionConfig.envd_port)
        config = ConnectionConfig(
            domain="localhost",
            debug=False,
            api_key="",
            api_url="http://127.0.0.1:9",  # nothing of the control plane is ever asked
            sandbox_url=f"http://127.0.0.1:{port}",
            request_timeout=REQUEST_S,
            extra_sandbox_headers={"X-Access-Token": self.token},
            retries=0,
            http_version="1.1",
        )
        return AsyncSandbox(
            sandbox_id=self.container,
            sandbox_domain="localhost",
            envd_version=Version(self.envd_version),
            envd_access_token=self.token,
            traffic_access_token=None,
            connection_config=config,
        )


class DockerBox(E2BBox):
    def __init__(self, provider: str, door: ContainerDoor, *, forget: Callable[[], object]) -> None:
        super().__init__(provider, door.sandbox(), scheme="http", traffic_url=None, forget=forget)
        self._door = door

    def url(self, port: int) -> str:
        """Names below `localhost` are this machine; the name says which port of which container it is."""
        return f"http://{port}-{self._door.container}.localhost:{self._door.ports.open(self._door.container, port)}"

    def address(self, port: int) -> PortAddress:
        return PortAddress(url=f"http://127.0.0.1:{self._door.ports.open(self._door.container, port)}")
