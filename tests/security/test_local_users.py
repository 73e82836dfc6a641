"""Other users of the host: what they can list and read of an instance."""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from pathlib import Path

from sandlot.engine.core.model import LogEntry
from sandlot.engine.node.logs import EndedLogs
from sandlot.server import instance
from sandlot.settings import Settings
from sandlot.setup import checks

ENTRY = LogEntry(at=datetime(2030, 1, 1, tzinfo=UTC), message="what ran", level="info")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def finding(data_dir: Path) -> checks.Finding:
    settings = Settings(data_dir=data_dir, cache_dir=data_dir)
    return next(each for each in checks.examine(settings) if each.name == "data directory")


def test_a_new_data_directory_cannot_be_listed_and_its_logs_cannot_be_read(tmp_path: Path) -> None:
    data = tmp_path / "new" / "data"
    instance.make_private(data)
    EndedLogs(data / "logs").keep("i1", [ENTRY])
    assert (mode(data), mode(data / "logs"), mode(data / "logs" / "i1.jsonl")) == (0o711, 0o700, 0o600)
    assert finding(data).state == "ok"


def test_an_open_one_of_an_earlier_version_is_mended_and_the_doctor_sees_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "logs").mkdir(parents=True)
    for name in ("server.lock", "server.json", "logs/server.log", "logs/server.log.1", "logs/i1.jsonl"):
        (data / name).write_text("x")
    (data / "ca-bundle.pem").write_text("for everybody")
    for path in (data, *data.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert finding(data).state == "warn" and "data" in finding(data).detail
    instance.make_private(data)
    assert mode(data) == 0o711 and mode(data / "ca-bundle.pem") == 0o644
    assert {mode(path) for path in (data / "logs").iterdir()} == {0o600}
    assert mode(data / "logs") == 0o700 and mode(data / "server.json") == 0o600
    assert finding(data).state == "ok"


def test_a_directory_that_others_share_keeps_its_mode_and_a_link_is_not_followed(tmp_path: Path) -> None:
    shared, target = tmp_path / "shared", tmp_path / "target"
    shared.mkdir()
    shared.chmod(0o1777)
    target.write_text("somebody's")
    target.chmod(0o644)
    (shared / "logs").mkdir()
    (shared / "logs" / "link").symlink_to(target)
    (shared / "server.lock").touch()
    instance.make_private(shared)
    assert mode(shared) == 0o1777 and mode(target) == 0o644
