"""What people do in the console, done in a real browser."""

from __future__ import annotations

import pytest
from tests.console_web.conftest import Spec

pytestmark = pytest.mark.timeout(300)


def test_a_key_logs_in_until_it_is_revoked(spec: Spec) -> None:
    spec("login")


def test_cards_are_moved_by_mouse_keys_and_menu(spec: Spec) -> None:
    spec("board")


def test_a_server_that_is_killed_leaves_neither_a_gap_nor_a_repeat(spec: Spec) -> None:
    spec("stream")
