"""Every error of the platform has an HTTP status."""

from __future__ import annotations


def test_every_error_has_a_status() -> None:
    from sandlot.platform.api.errors import STATUS, status_of
    from sandlot.platform.core import errors

    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.PlatformError)
    ]
    assert set(STATUS) <= set(kinds)
    for kind in kinds:
        assert kind is errors.PlatformError or kind is errors.ConfigurationError or status_of(kind("x")) != 500
