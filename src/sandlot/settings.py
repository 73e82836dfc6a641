"""Every setting of Sandlot, as data: the CLI, the settings page of the docs and validation read this one class."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

DEFAULT_PORT = 3900
LOCAL_DOMAIN = "sandlot.localhost"  # of a server that was given none; names below localhost are this machine


class Settings(BaseSettings):
    """Read from the environment (`SANDLOT_` + the name in capitals); command-line options come before it."""

    model_config = SettingsConfigDict(env_prefix="SANDLOT_", extra="ignore", env_ignore_empty=True)

    data_dir: Path = Field(
        Path("/var/lib/sandlot"), description="Everything this instance keeps: database, templates, sandboxes, keys."
    )
    cache_dir: Path = Field(
        Path("/var/cache/sandlot"),
        description="Template layers: read-only, shared by every instance of this machine, rebuilt when missing.",
    )
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(DEFAULT_PORT, ge=0, le=65535, description="Port for API and sandbox traffic; 0 picks a free one.")
    database_url: str | None = Field(
        None,
        description="PostgreSQL address (`postgresql://user:password@host/name`). Unset: SQLite in the data directory.",
    )
    config: Path | None = Field(
        None,
        description="The platform's configuration (providers, limits, webhooks). Unset: `sandlot.toml` in the data directory, if there is one.",
    )
    domain: str | None = Field(
        None,
        description="Serve sandbox ports at `https://{port}-{id}.{domain}`; plain HTTP is then for clients on this machine alone. "
        "Unset: `sandlot.localhost`, and plain HTTP for everybody who reaches the port.",
    )
    tls_cert: Path | None = Field(None, description="Your certificate (PEM). Unset: a local CA makes one.")
    tls_key: Path | None = Field(None, description="The certificate's private key (PEM).")
    https_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="A second port with the same services. 443: addresses of sandboxes then need no port number, which some "
        "clients cannot deal with. Where it is taken, a server without a domain says so and does without. "
        "Unset: 443, where it is free, for a server without a domain on the usual port. 0: none.",
    )
    runtime: Literal["auto", "gvisor", "container"] = Field(
        "auto", description="How sandboxes are isolated where a template does not say. `auto`: gVisor where it works."
    )
    runsc: str | None = Field(None, description="Path of the runsc binary. Unset: the one on PATH.")
    sandbox_cpu_count: int = Field(2, ge=1, le=256, description="CPUs per sandbox where a template does not say.")
    sandbox_memory_mb: int = Field(
        1024, ge=128, description="Memory per sandbox, in MiB, where a template does not say."
    )
    sandbox_disk_mb: int = Field(5120, ge=64, description="Most a sandbox may write, in MiB.")
    sandbox_pids: int = Field(2048, ge=32, description="Most processes and threads in a sandbox.")
    max_sandboxes: int = Field(100, ge=1, description="Most sandboxes that run at once; more are refused with 429.")
    idle_freeze_s: float = Field(
        5,
        ge=0,
        description="After how many seconds a sandbox is frozen in which nothing runs and that nobody is connected to; "
        "the next request thaws it. 0: never.",
    )
    max_timeout_hours: int = Field(24, ge=1, description="Longest time to live that a caller may ask for.")
    network_range: IPv4Network = Field(
        IPv4Network("10.213.0.0/16"), description="Addresses for sandbox slots; each instance takes a free part of it."
    )
    network_allow_private: Annotated[tuple[IPv4Network, ...], NoDecode] = Field(
        (), description="Private ranges that sandboxes may reach, comma-separated. Default: none."
    )
    dns_servers: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Resolvers that sandboxes' names are looked up at, comma-separated. Unset: the host's own."
    )
    guest_ca_file: Path | None = Field(
        None,
        description="Certificates (PEM) that every sandbox trusts besides its own, as a company's proxy needs: system store, curl, git, Python, Node.js.",
    )
    egress_log: Literal["policy", "all"] = Field(
        "policy",
        description="Which connections of sandboxes the egress log has: those that a policy with names, rules or a proxy decides, and names "
        "that were refused; or `all` to the ports 80 and 443, which then pass through the relays.",
    )
    keep_egress_days: int = Field(7, ge=1, le=3650, description="How long the egress log is kept.")
    warm_slots: int = Field(4, ge=0, description="Network slots kept ready beyond those in use.")
    pool_size: int = Field(
        2,
        ge=0,
        le=1000,
        description="Sandboxes kept ready for each template that was used in the last half hour; more after bursts. 0: none.",
    )
    pool_memory_mb: int = Field(
        1024,
        ge=0,
        description="Most memory that sandboxes in the warm pool may take, in MiB; they go when the host runs short.",
    )
    boot_snapshots: int = Field(
        16,
        validation_alias=AliasChoices("SANDLOT_BOOT_SNAPSHOTS", "SANDLOT_SEEDS", "boot_snapshots"),  # SEEDS: before 0.2
        ge=0,
        le=1000,
        description=(
            "States of freshly booted gVisor sandboxes kept on disk, one for each template in use, so that the next ones need not "
            "boot; about 10 MB each. 0: none."
        ),
    )
    checkpoint_disk_gb: int = Field(
        50, ge=1, description="Most disk that states of paused sandboxes and snapshots may use, in GiB."
    )
    prepare_templates: Annotated[tuple[str, ...], NoDecode] = Field(
        ("code-interpreter-v1",),
        description="Stock templates that are built in the background when the server first runs, comma-separated; "
        "`none`: each when it is first asked for.",
    )
    builds_at_once: int = Field(2, ge=1, le=64, description="Template builds that run at once; more wait.")
    build_timeout_minutes: int = Field(60, ge=1, description="Longest time that a template build may take.")
    build_ready_s: int = Field(
        600, ge=1, description="How long a template's ready command may take to succeed, in seconds."
    )
    build_memory_mb: int = Field(
        2048, ge=128, description="Memory that steps of a build get, in MiB, if the template itself has no more."
    )
    build_disk_mb: int = Field(10240, ge=64, description="Most that one step of a build may write, in MiB.")
    build_isolation: Literal["sandbox", "container"] = Field(
        "sandbox",
        description="What commands of template builds run in. `sandbox`: the same as sandboxes (`runtime`). `container`: always the host's "
        "kernel, as in `container` sandboxes; faster than gVisor, and only for teams whom you would give such sandboxes.",
    )
    build_internet: bool = Field(True, description="Whether steps of builds may reach the internet.")
    max_upload_mb: int = Field(4096, ge=1, description="Largest archive of files for one COPY of a build, in MiB.")
    image_catalogue: Literal["fallback", "first", "never"] = Field(
        "fallback",
        description="When stock templates stand in for well-known images: where no registry answers, always, or never.",
    )
    allow_stand_in: bool = Field(
        False,
        description="Let stock templates stand in for images of other versions, too (Debian 12 for `ubuntu:22.04`). The build log says what was given.",
    )
    trusted_registries: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Image registries at private addresses that builds may pull from, as `host[:port]`, comma-separated; "
        "those on loopback are spoken to without TLS.",
    )
    amazon_registry_endpoint: str | None = Field(
        None,
        pattern=r"^https?://[^/\s]+/?$",
        description="Where builds sign in to Amazon's image registries, as a URL. Default: Amazon's own address of the region.",
    )
    keep_ended_hours: int = Field(
        24, ge=0, description="How long ended sandboxes and their logs can still be looked up."
    )
    max_body_mb: int = Field(16, ge=1, description="Largest JSON body the API reads (sandbox traffic is not limited).")
    metrics_need_key: bool = Field(
        False, description="Have `/metrics`, `/docs` and `/openapi.json` want a key, like the rest of the API."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="How much the server logs.")
    log_format: Literal["auto", "json", "text"] = Field(
        "auto", description="`auto`: text on a terminal, JSON lines otherwise."
    )

    @field_validator("network_allow_private", "dns_servers", "trusted_registries", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("prepare_templates", mode="before")
    @classmethod
    def _names(cls, value: object) -> object:
        parts = cls._split(value)
        return () if parts == ("none",) else parts

    @field_validator("data_dir", "cache_dir", "config", "guest_ca_file")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        return value.expanduser().absolute() if value is not None else None
