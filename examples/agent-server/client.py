"""Talk to an agent in a sandbox over a WebSocket, leave, pause the sandbox, and come back another day.

    python client.py "write a haiku to haiku.txt"            # prints the sandbox's id at the end
    python client.py --sandbox ID "now in French"            # resumes it, and goes on in the same conversation

Variables: those of the E2B SDK (`eval "$(./sandlot env)"`), and AGENT_ENV, a JSON object of variables with which the agent finds its model.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import uuid

import aiohttp
from e2b import AsyncSandbox

PORT = 3000


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sandbox")
    parser.add_argument("--after", type=int, default=0, help="the number of the last frame that was seen")
    parser.add_argument("prompt")
    given = parser.parse_args()
    if given.sandbox:
        sandbox = await AsyncSandbox.connect(given.sandbox, timeout=600)  # resumed, if it is paused
    else:
        sandbox = await AsyncSandbox.create("agent-server", timeout=600)
    token = (await sandbox.commands.run("agent-server token")).stdout.strip()
    scheme = os.environ.get("AGENT_SCHEME", "https")  # "http" for a server without a certificate
    address = f"{scheme}://{sandbox.get_host(PORT)}"
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as http:
        if not given.sandbox:
            env = json.loads(os.environ.get("AGENT_ENV", "{}"))
            async with http.post(f"{address}/config", json={"env": env}) as answer:
                answer.raise_for_status()
        last = await converse(http, address, given.prompt, given.after)
    await sandbox.beta_pause()
    print(f"\nsandbox {sandbox.sandbox_id} is paused; go on with --sandbox {sandbox.sandbox_id} --after {last}")


async def converse(http: aiohttp.ClientSession, address: str, prompt: str, last: int) -> int:
    """Send a prompt and print the answer as it comes, over as many connections as it takes. Returns the last frame's number."""
    message = {"uuid": str(uuid.uuid4()), "message": {"role": "user", "content": prompt}}
    started = False
    while True:
        try:
            async with http.ws_connect(f"{address}/ws?after={last}", heartbeat=20) as socket:
                # Sent again after a reconnect: the same uuid is taken once.
                await socket.send_json({"type": "user_message", "data": message})
                async for received in socket:
                    frame = json.loads(received.data)
                    last = frame.get("seq", last) if frame["type"] != "connected" else last
                    if frame["type"] == "user_message" and frame["data"]["uuid"] == message["uuid"]:
                        started = True
                    if frame["type"] == "sdk_message" and started:
                        show(frame["data"])
                    if frame["type"] == "error":
                        raise SystemExit(frame["message"])
                    if frame["type"] == "state" and frame["state"] == "idle" and started:
                        return last
        except aiohttp.ClientError as error:
            print(f"\n({error}; connecting again)")
            await asyncio.sleep(1)


def show(message: dict) -> None:
    if message["type"] == "stream_event":
        delta = message["event"].get("delta", {})
        print(delta.get("text", ""), end="", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
