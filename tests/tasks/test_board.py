"""The agent of a task hands out work through its tunnel, with the credential of its own task: below that task, and nowhere else."""

from __future__ import annotations

import json
from typing import Any

from tests.tasks.world import Tasks

COMMAND = r"""
ask() {
  curl -s -H "Authorization: Bearer $1" -H 'Content-Type: application/json' \
    -H 'Accept: application/json, text/event-stream' -H 'MCP-Protocol-Version: 2025-06-18' -d "$3" "$TASK_BOARD_URL" >"$2"
}
call() {
  ask "$TASK_BOARD_TOKEN" "$1" '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"'"$2"'","arguments":'"$3"'}}'
}
ask "$TASK_BOARD_TOKEN" tools.json '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}'
ask slm_wrong refused.txt '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}'
call made.json task_create '{"repository":"app","prompt":"A part","command":"true","start":false,"internet":true}'
call elsewhere.json task_create '{"repository":"other","prompt":"A part","command":"true","start":false}'
call other.json task_show '{"id":"OTHER"}'
call stop.json task_stop '{"id":"OTHER"}'
call listed.json task_list '{}'
curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:6070/tasks >routes.txt
"""
FILES = [f"{name}.json" for name in ("tools", "made", "elsewhere", "other", "stop", "listed")] + [
    "refused.txt",
    "routes.txt",
]


async def test_an_agent_hands_out_work_below_its_own_task_and_reaches_nothing_else(ann: Tasks) -> None:
    await ann.repository("app")
    await ann.repository("other")
    other = await ann.create("Another", command="true", start=False)
    id = await ann.create("Hand out", command=COMMAND.replace("OTHER", other), artifacts=FILES)
    await ann.until(id, "review")

    async def said(name: str) -> str:
        answer = await ann.http.get(f"/tasks/{id}/artifacts/{name}")
        assert answer.status_code == 200, answer.text
        return answer.text

    async def result(name: str) -> Any:
        return json.loads(await said(name))["result"]

    names = {tool["name"] for tool in (await result("tools.json"))["tools"]}
    assert names == {"task_create", "task_list", "task_show", "task_message", "task_stop"}
    assert "Bearer" in await said("refused.txt") and "tools" not in await said("refused.txt")
    made = json.loads((await result("made.json"))["content"][0]["text"])
    assert made["parent"] == id and made["repository"] == "app"
    child = await ann.show(made["id"])
    assert child["network"]["internet"] is False  # no more than its parent
    assert (await result("elsewhere.json"))["isError"] and "repository 'app'" in await said("elsewhere.json")
    for name in ("other.json", "stop.json"):
        assert (await result(name))["isError"] and "not found" in await said(name)
    listed = json.loads((await result("listed.json"))["content"][0]["text"])["tasks"]
    assert [task["id"] for task in listed] == [made["id"]]
    assert await said("routes.txt") == "404"
    assert (await ann.show(other))["state"] == "todo"
