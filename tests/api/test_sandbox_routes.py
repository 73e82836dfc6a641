from __future__ import annotations

from tests.api.doors import Doors


async def test_a_sandbox_is_created_found_and_killed(doors: Doors) -> None:
    created = await doors.create(metadata={"user": "ada"}, envVars={"A": "1"})
    assert created["templateID"] == "base" and created["envdVersion"] == "0.6.13"
    assert len(created["envdAccessToken"]) >= 32 and "trafficAccessToken" not in created
    async with doors.client() as client:
        found = await client.get(f"/sandboxes/{created['sandboxID']}")
        assert found.status_code == 200
        assert found.json()["metadata"] == {"user": "ada"} and found.json()["isolation"] == "none"
        assert found.headers["X-Sandlot-Isolation"] == "none"
        assert (await client.delete(f"/sandboxes/{created['sandboxID']}")).status_code == 204
        assert (await client.delete(f"/sandboxes/{created['sandboxID']}")).status_code == 404
