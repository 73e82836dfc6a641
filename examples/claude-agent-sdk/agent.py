"""An agent made with the Claude Agent SDK that works in a sandbox: all its tools come from one MCP address.

SANDBOX_MCP_URL    the address, e.g. http://127.0.0.1:3900/mcp
SANDBOX_MCP_TOKEN  the key or token that belongs to it
ANTHROPIC_API_KEY  your key for the model (and ANTHROPIC_BASE_URL, if it is somewhere else)
"""

from __future__ import annotations

import asyncio
import os
import sys

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ResultMessage,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
    query,
)

TASK = "Write a Python program that sums the squares of 0 to 9 into squares/sum.txt, run it, and tell me what the file says."
ROLE = "You work in a Linux sandbox of your own, through the tools that you are given. Check what you did before you say so."
LONGEST = 400  # characters of a result that are worth a line on the screen


def options() -> ClaudeAgentOptions:
    headers = {"Authorization": f"Bearer {os.environ['SANDBOX_MCP_TOKEN']}"}
    return ClaudeAgentOptions(
        system_prompt=ROLE,
        mcp_servers={"sandbox": {"type": "http", "url": os.environ["SANDBOX_MCP_URL"], "headers": headers}},
        tools=[],  # nothing that touches this machine: no shell, no files
        allowed_tools=["mcp__sandbox"],  # everything there, without asking
        setting_sources=[],  # nor what somebody has configured here
        # It would begin without tools that take more than some seconds to answer, and a paused sandbox may.
        env={"MCP_CONNECTION_NONBLOCKING": "0", "MCP_CONNECT_TIMEOUT_MS": "60000"},
    )


async def work(task: str) -> str:
    """Prints each step; returns the agent's last word."""
    said = ""
    async for message in query(prompt=task, options=options()):
        if isinstance(message, (AssistantMessage, UserMessage)):
            show(message)
        elif isinstance(message, ResultMessage):
            if message.is_error:
                raise SystemExit(f"the agent gave up: {message.result}")
            said = message.result or ""
    return said


def show(message: AssistantMessage | UserMessage) -> None:
    for block in message.content:
        if isinstance(block, ToolUseBlock):
            print(f"-> {block.name} {block.input}")
        elif isinstance(block, ToolResultBlock):
            parts = block.content if isinstance(block.content, list) else [{"text": block.content or ""}]
            print("    " + "".join(str(part.get("text", "")) for part in parts)[:LONGEST].strip())


if __name__ == "__main__":
    print(asyncio.run(work(" ".join(sys.argv[1:]) or TASK)))
