"""The egress log over the API: of one team, in pages, as JSON and line by line; secrets show their last use."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import httpx
from e2b import AsyncSecret
from tests.api.servers import Doors

from sandlot.engine.core.model import EgressEntry, EgressReport


async def test_what_left_is_told_to_its_team_and_secrets_show_their_use(doors: Doors, sandbox: str) -> None:
    await AsyncSecret.create("token", "value", **doors.sdk)
    entry = EgressEntry(
        sandbox_id=sandbox,
        at=datetime.now(UTC),
        host="api.example.com",
        port=443,
        allowed=True,
        connections=3,
        bytes_out=10,
        bytes_in=20,
        rule="api.example.com",
        secrets=("token",),
    )
    doors.node.egress = EgressReport(entries=(entry, entry), left_out={sandbox: 7, "nobody": 3})
    await doors.egress.gather()
    async with httpx.AsyncClient(base_url=doors.url, headers={"X-API-KEY": doors.key}) as client:
        page = (await client.get(f"/sandboxes/{sandbox}/egress?limit=1")).json()
        assert page["leftOut"] == 7 and page["entries"][0]["secrets"] == ["token"]
        after = page["entries"][0]["number"]
        lines = (await client.get(f"/sandboxes/{sandbox}/egress?after={after}&format=jsonl")).text.splitlines()
        assert [json.loads(line)["connections"] for line in lines] == [3]
        assert (await client.get("/secrets/token")).json()["lastUsedAt"]
        assert (await client.get("/sandboxes/inobody0/egress")).status_code == 404
        other = await doors.access.create_team("others")
        _, key = await doors.access.create_key(other.id, "k")
        assert (await client.get(f"/sandboxes/{sandbox}/egress", headers={"X-API-KEY": key})).status_code == 404
