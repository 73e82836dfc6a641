"""How much one sandbox may take of the platform through its tunnel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TunnelLimits:
    most_streams: int = 64  # connections from inside at one time
    window: int = 512 << 10  # bytes of one stream that may be on their way, or wait here, in one direction
    frame: int = 256 << 10  # bytes of one message
    most_waiting: int = 4096  # short messages that wait for a relay that does not read
    body_bytes: int = 4 << 30  # of one request
    body_s: float = 120.0  # how long a request's body may stand still
    request_s: float = 3600.0
    stall_s: float = 120.0  # how long an answer may wait for a client that takes nothing
    idle_s: float = 30.0  # how long a connection is kept between requests
    ping_s: float = 15.0
    silence_s: float = 60.0  # without a word of the relay, after which its connection is lost
    open_s: float = 20.0
    start_s: float = 60.0


LIMITS = TunnelLimits()
