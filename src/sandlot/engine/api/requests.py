"""What callers may send: the bodies of E2B's API, checked strictly, and what they mean to the engine."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from sandlot.engine.control.sandbox_request import NewSandbox
from sandlot.engine.core.errors import InvalidRequest
from sandlot.engine.core.header_rules import checked_proxy
from sandlot.engine.core.model import EgressProxy, NetworkPolicy, OnTimeout
from sandlot.engine.core.network_policy import validate

METADATA_LIMIT = 64 * 1024
ENV_LIMIT = 256 * 1024
INT32 = 2**31 - 1


def _plain(text: str) -> str:
    if "\x00" in text:
        raise ValueError("must not contain a null character")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("must be valid Unicode") from None
    return text


def _metadata(values: dict[str, str]) -> dict[str, str]:
    if sum(len(k) + len(v) for k, v in values.items()) > METADATA_LIMIT:
        raise ValueError(f"must not be larger than {METADATA_LIMIT // 1024} KiB in all")
    return values


def _environment(values: dict[str, str]) -> dict[str, str]:
    if any(not name or "=" in name for name in values):
        raise ValueError("names must not be empty and must not contain '='")
    if sum(len(k) + len(v) for k, v in values.items()) > ENV_LIMIT:
        raise ValueError(f"must not be larger than {ENV_LIMIT // 1024} KiB in all")
    return values


Text = Annotated[str, AfterValidator(_plain)]
Name = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_plain)]
Metadata = Annotated[dict[Text, Text], AfterValidator(_metadata)]
Environment = Annotated[dict[Text, Text], AfterValidator(_environment)]
Seconds = Annotated[int, Field(ge=0, le=INT32)]
Host = Annotated[str, Field(max_length=512), AfterValidator(_plain)]
Hosts = Annotated[list[Host], Field(max_length=2000)]


class Body(BaseModel):
    """Types are taken as they are ("300" is no number); unknown fields are for newer servers and are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")


class AutoResume(Body):
    enabled: bool = False


class ProxyTls(Body):
    enabled: bool = True
    serverName: Annotated[str, Field(min_length=1, max_length=253), AfterValidator(_plain)] | None = None
    caCert: Annotated[str, Field(min_length=1, max_length=8192), AfterValidator(_plain)] | None = None


class ProxyRequest(Body):
    address: Host = Field(description="`host:port` of a SOCKS5 proxy.")
    username: Text | None = None
    password: Text | None = None
    tls: ProxyTls | None = None

    def proxy(self) -> EgressProxy:
        tls = self.tls if self.tls is not None and self.tls.enabled else None
        return checked_proxy(
            self.address,
            username=self.username,
            password=self.password,
            use_tls=tls is not None,
            server_name=tls.serverName if tls else None,
            ca_cert=tls.caCert if tls else None,
        )


class Transform(Body):
    headers: dict[Text, Text] | None = Field(
        None, description="Set in every request, in place of what was said; a value may have `${e2b.secrets.NAME}`."
    )


class Rule(Body):
    transform: Transform | None = None


class Egress(Body):
    """What a sandbox may reach."""

    allowOut: Hosts | None = Field(
        None, description="Addresses, CIDRs, domains or *.domains; these come before denyOut."
    )
    denyOut: Hosts | None = Field(None, description="Addresses and CIDRs.")
    dnsServers: Annotated[list[Host], Field(max_length=100)] | None = None
    egressProxy: ProxyRequest | None = Field(None, description="What is sent by TCP leaves through it.")
    rules: Annotated[dict[Host, Annotated[list[Rule], Field(max_length=100)]], Field(max_length=1000)] | None = Field(
        None, description="Headers for requests to a domain or *.domain. They allow nothing by themselves."
    )

    def egress(self) -> dict[str, Any]:
        """The part of a policy that creating and changing share."""
        rules = {
            domain: [each.transform.headers or {} if each.transform else {} for each in entries]
            for domain, entries in (self.rules or {}).items()
        }
        return {
            "allow_out": self.allowOut or (),
            "deny_out": self.denyOut or (),
            "dns_servers": self.dnsServers,
            "rules": rules,
            "egress_proxy": self.egressProxy.proxy() if self.egressProxy else None,
        }


class NetworkUpdate(Egress):
    """Replaces the whole egress policy: what is missing is cleared."""

    allow_internet_access: bool | None = None

    def policy(self) -> NetworkPolicy:
        return validate(allow_internet=self.allow_internet_access, **self.egress())


class NetworkRequest(Egress):
    """What a sandbox may reach, and who may reach it."""

    allowPublicTraffic: bool | None = Field(None, description="false: ports other than envd's need the traffic token.")
    maskRequestHost: Host | None = Field(None, description="The Host header that services see; ${PORT} is the port.")
    httpsPorts: Annotated[list[int], Field(max_length=100)] | None = Field(
        None, description="Ports on which the service speaks TLS."
    )

    def policy(self, allow_internet: bool | None) -> NetworkPolicy:
        return validate(
            allow_internet=allow_internet,
            allow_public_traffic=self.allowPublicTraffic is not False,
            mask_request_host=self.maskRequestHost,
            https_ports=self.httpsPorts or (),
            **self.egress(),
        )


class VolumeMount(Body):
    name: str
    path: str


class Iam(Body):
    tokens: dict[Text, Any] | None = None


class Create(Body):
    """A sandbox to be made from a template. Its traffic with envd is always secured."""

    templateID: Name
    timeout: Seconds | None = Field(None, description="Time to live in seconds. Default: 300.")
    autoPause: bool | None = None
    autoPauseMemory: bool | None = None
    autoResume: AutoResume | None = None
    allow_internet_access: bool | None = None
    network: NetworkRequest | None = None
    metadata: Metadata | None = None
    envVars: Environment | None = None
    mcp: dict[str, Any] | None = None
    iam: Iam | None = Field(None, description="Not available yet.")
    volumeMounts: Annotated[list[VolumeMount], Field(max_length=100)] | None = Field(
        None, description="Not available yet."
    )

    def wanted(self, idempotency_key: str | None, *, secure: bool = True, default_timeout_s: int = 300) -> NewSandbox:
        self._check_available()
        return NewSandbox(
            template=self.templateID,
            timeout_s=default_timeout_s if self.timeout is None else self.timeout,
            metadata=self.metadata or {},
            env_vars=self.envVars or {},
            network=(self.network or NetworkRequest()).policy(self.allow_internet_access),
            secure=secure,
            on_timeout=OnTimeout.PAUSE if self.autoPause else OnTimeout.KILL,
            auto_resume=self.autoResume is not None and self.autoResume.enabled,
            pause_memory=self.autoPauseMemory is not False,
            idempotency_key=idempotency_key,
        )

    def _check_available(self) -> None:
        if self.volumeMounts:
            raise InvalidRequest("volumeMounts are not available on this server yet; leave them out")
        if self.iam is not None and self.iam.tokens:
            raise InvalidRequest("iam tokens are not available on this server yet; leave them out")


class LegacyCreate(Create):
    """The older generation of SDKs: the caller says whether traffic with envd is secured."""

    timeout: Seconds | None = Field(None, description="Time to live in seconds. Default: 15.")
    secure: bool | None = None


class Connect(Body):
    timeout: Seconds | None = Field(None, description="Live at least this many seconds from now. Default: 300.")
    memory: bool | None = None


class LegacyConnect(Body):
    timeout: Seconds
    memory: bool | None = None


class Resume(Body):
    timeout: Seconds | None = None
    autoPause: bool | None = None
    memory: bool | None = None


class Timeout(Body):
    timeout: Seconds = Field(description="End this many seconds from now; 0 ends the sandbox at once.")


class Refresh(Body):
    duration: Annotated[int, Field(ge=0, le=3600)] | None = None


class Pause(Body):
    memory: bool | None = None
    requireHealthyGuest: bool | None = None


class Fork(Body):
    timeout: Seconds | None = None
    count: Annotated[int, Field(ge=1, le=100)] | None = None


class NewSecret(Body):
    name: Text = Field(description="Unique in the team; kept in lower case.", max_length=512)
    value: Text = Field(description="Goes into requests that leave; never told again.", max_length=1 << 18)
    metadata: dict[Text, Text] | None = None


class SecretUpdate(Body):
    value: Text = Field(description="The next version; the one before it is gone.", max_length=1 << 18)
    metadata: dict[Text, Text] | None = Field(None, description="Replaces what there is; missing: as it was.")


class Snapshot(Body):
    name: Name | None = None
    memory: bool | None = None
