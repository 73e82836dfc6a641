"""The engine's error tree: every failure that crosses a seam is one of these.

    EngineError
    ├── InvalidRequest          what was asked cannot be right          (400)
    │   └── StepFailed          a step of a build did not succeed
    ├── Unauthorized            no key, or one that is not valid         (401)
    ├── Forbidden               a valid key that may not do this         (403)
    ├── NotFound                no such thing, or not the caller's       (404)
    ├── Conflict                the thing is in another state            (409)
    │   └── WrongState          a move the state table does not allow
    ├── StateUnusable           what was saved of a machine is no good   (409)
    ├── NoCapacity              limits reached; try again later          (429)
    ├── MachineFailed           a machine could not be started or died   (500)
    │   └── GuestUnresponsive   the machine runs, its envd does not answer
    ├── ForwardFailed           a request could not be passed into a sandbox
    │   ├── PortClosed          nothing listens at the port
    │   ├── BadUpstream         what listens there gave no usable answer
    │   ├── UpstreamRefused     the service refused the WebSocket
    │   ├── SandboxLeft         the sandbox ended before the answer began
    │   ├── TooManyConnections  the sandbox has as many exchanges as it may have
    │   └── Draining            it is about to be paused: try again soon
    └── Unavailable             a part of this host is missing or broken (503)
        └── NotReadyYet         it is being made: try again later

A message says what was being done, to what, and what to do next. It goes to the caller as it is, so it
holds no host path and no secret. Status codes live in `api/errors.py` alone.
"""


class EngineError(Exception):
    """The root: `except EngineError` catches every failure the engine means to report."""


class InvalidRequest(EngineError):
    """The request itself is wrong; repeating it will not help."""


class StepFailed(InvalidRequest):
    """A step of a build did not succeed; the message is for whoever wrote the step."""


class Unauthorized(EngineError):
    """No key was given, or the key is unknown or revoked."""


class Forbidden(EngineError):
    """The caller is known and may not do this."""


class NotFound(EngineError):
    """The thing does not exist, or belongs to somebody else (the two look the same from outside)."""


class Conflict(EngineError):
    """The thing exists, and its present state does not allow what was asked."""


class WrongState(Conflict):
    """A move that the table of allowed moves does not have."""


class StateUnusable(EngineError):
    """What was saved of a machine is missing, damaged, or of a program that is gone; trying again does not help."""


class NoCapacity(EngineError):
    """A limit is reached; the same request may succeed later."""


class MachineFailed(EngineError):
    """A machine could not be started, or ended when it should not have."""


class GuestUnresponsive(MachineFailed):
    """The machine is up, and the daemon inside it does not answer."""


class ForwardFailed(EngineError):
    """A request could not be passed on to a service in a sandbox; nothing was answered yet."""


class PortClosed(ForwardFailed):
    """The sandbox runs, and nothing listens at that port."""


class BadUpstream(ForwardFailed):
    """The service gave no answer that can be passed on; the message says what it did instead."""


class UpstreamRefused(ForwardFailed):
    """The service refused a WebSocket."""

    def __init__(self, status: int) -> None:
        super().__init__(f"The service in the sandbox refused the WebSocket with status {status}")
        self.status = status


class SandboxLeft(ForwardFailed):
    """The sandbox ended, or was paused, before its answer began."""


class TooManyConnections(ForwardFailed):
    """The sandbox has as many exchanges in progress as one may have."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the sandbox has {limit} exchanges in progress")
        self.limit = limit


class Draining(ForwardFailed):
    """The sandbox is about to be paused: no new exchanges, and nothing of this one was used up."""


class Unavailable(EngineError):
    """Something this host needs is missing or broken; the message says what to install or repair."""


class NotReadyYet(Unavailable):
    """What was asked for is being made; `retry_after_s` says when to ask again."""

    def __init__(self, message: str, retry_after_s: int = 5) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
