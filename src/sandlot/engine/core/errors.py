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
    └── Unavailable             a part of this host is missing or broken (503)

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


class Unavailable(EngineError):
    """Something this host needs is missing or broken; the message says what to install or repair."""
