"""Why a server cannot start."""


class StartupFailed(Exception):
    """Something that the server needs is missing or wrong; the message says what to repair."""
