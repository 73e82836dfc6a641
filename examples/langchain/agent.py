"""A LangChain agent that works in a sandbox: all its tools come from one MCP address.

SANDBOX_MCP_URL    the address, e.g. http://127.0.0.1:3900/mcp
SANDBOX_MCP_TOKEN  the key or token that belongs to it
MODEL              e.g. anthropic:claude-sonnet-4-5 or openai:gpt-5; its provider's own variables say the rest
"""

from __future__ import annotations

import asyncio
import os
import sys

from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool
from langchain_mcp_adapters.client import MultiServerMCPClient

TASK = "Write a Python program that sums the squares of 0 to 9 into squares/sum.txt, run it, and tell me what the file says."
ROLE = "You work in a Linux sandbox of your own, through the tools that you are given. Check what you did before you say so."
LONGEST = 400  # characters of a result that are worth a line on the screen


async def sandbox_tools() -> list[BaseTool]:
    headers = {"Authorization": f"Bearer {os.environ['SANDBOX_MCP_TOKEN']}"}
    address = {"transport": "streamable_http", "url": os.environ["SANDBOX_MCP_URL"], "headers": headers}
    tools: list[BaseTool] = await MultiServerMCPClient({"sandbox": address}).get_tools()
    for tool in tools:
        tool.handle_tool_error = True  # a failure is something to tell the model, not the end of the program
    return tools


async def work(task: str) -> str:
    """Prints each step; returns the agent's last word."""
    agent = create_agent(init_chat_model(os.environ["MODEL"]), await sandbox_tools(), system_prompt=ROLE)
    said = ""
    async for update in agent.astream({"messages": [("user", task)]}, stream_mode="updates"):
        for step in update.values():
            for message in step["messages"]:
                show(message)
                if isinstance(message, AIMessage):
                    said = message.text
    return said


def show(message: AIMessage | ToolMessage) -> None:
    if isinstance(message, ToolMessage):
        print(f"    {message.text[:LONGEST].strip()}")
        return
    for call in message.tool_calls:
        print(f"-> {call['name']} {call['args']}")


if __name__ == "__main__":
    print(asyncio.run(work(" ".join(sys.argv[1:]) or TASK)))
