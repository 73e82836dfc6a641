"""The clock: services take one, so that tests can hold it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

Clock = Callable[[], datetime]  # aware UTC
