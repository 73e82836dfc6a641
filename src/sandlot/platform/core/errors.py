"""The platform's errors, as one tree. `api/errors.py` maps each to an HTTP status.

PlatformError
├── ConfigurationError     the configuration file is wrong; nobody is served until it is right
├── InvalidRequest         the request cannot be understood or makes no sense
├── Unauthorized           no key, or one that is not valid
├── Forbidden              a valid key that may not do this
├── NotFound               it does not exist, or belongs to somebody else
│   └── SandboxGone        the provider no longer has it
├── Conflict               the state of the thing does not allow it now
│   ├── NothingToMerge     a branch has nothing that its base lacks
│   └── HeadMoved          a branch is no longer where the work on it began
├── TooLarge               more bytes than this route takes or gives
├── Busy                   a limit is reached; later it may work
├── ProviderRefused        the provider answers, and says no
├── ForgeRefused           the forge, or a remote repository, answers and says no
└── Unavailable            something we need does not answer; later it may work
    └── ProviderFull       the provider has no room just now
"""

from __future__ import annotations


class PlatformError(Exception):
    """Everything the platform raises on purpose."""


class ConfigurationError(PlatformError):
    """The configuration file is wrong."""


class InvalidRequest(PlatformError):
    """The request cannot be understood or makes no sense."""


class Unauthorized(PlatformError):
    """No key, or one that is not valid."""


class Forbidden(PlatformError):
    """A valid key that may not do this."""


class NotFound(PlatformError):
    """It does not exist, or belongs to another user. The message does not tell which."""


class SandboxGone(NotFound):
    """The provider no longer has this sandbox."""


class Conflict(PlatformError):
    """The state of the thing does not allow it now."""


class NothingToMerge(Conflict):
    """A branch has nothing that its base lacks."""


class HeadMoved(Conflict):
    """A branch is no longer where the work on it began."""


class TooLarge(PlatformError):
    """More bytes than this route takes or gives."""


class Busy(PlatformError):
    """A limit is reached."""

    retry_after_s = 5


class ProviderRefused(PlatformError):
    """The provider answers, and says no: the key, the plan, the template."""


class ForgeRefused(PlatformError):
    """The forge, or a remote repository, answers and says no: the token, its permissions, a rule of the repository."""


class Unavailable(PlatformError):
    """Something we need does not answer."""

    def __init__(self, message: str, retry_after_s: int = 5) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ProviderFull(Unavailable):
    """The provider has no room just now."""
