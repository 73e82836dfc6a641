"""What the daemon does to the files that say the machine's name."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from envd import hostname


def test_the_name_is_replaced_where_it_stands_as_a_word_and_nothing_else_changes(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("127.0.0.1\tlocalhost\n169.254.0.21\told\n10.0.0.1  old.example  mine # older than old\n\n")
    hostname._rename(str(file), "old", "new")
    assert file.read_text() == (
        "127.0.0.1\tlocalhost\n169.254.0.21\tnew\n10.0.0.1\told.example\tmine\t#\tolder\tthan\tnew\n\n"
    )


def test_a_shorter_name_leaves_nothing_of_the_longer_one(tmp_path: Path) -> None:
    file = tmp_path / "hostname"
    file.write_text("a-long-name\n")
    hostname._rename(str(file), "a-long-name", "b")
    assert file.read_text() == "b\n"


def test_a_file_of_no_reasonable_size_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("old\n" + "#" * (1 << 20))
    hostname._rename(str(file), "old", "new")
    assert file.read_text().startswith("old\n")


def test_only_names_that_the_engine_gave_are_taken_from_the_file(tmp_path: Path) -> None:
    given, own = tmp_path / "given", tmp_path / "own"
    given.write_text("i0123456789abcdefghij\n")
    own.write_text("my-image\n")
    assert hostname._written(str(given)) == "i0123456789abcdefghij"
    assert hostname._written(str(own)) == hostname._written(str(tmp_path / "missing")) == ""


def test_who_is_not_the_first_process_of_a_machine_names_nothing(tmp_path: Path) -> None:
    assert os.getpid() != 1
    before = socket.gethostname()
    hostname.take("somebody-else", str(tmp_path))
    assert socket.gethostname() == before
