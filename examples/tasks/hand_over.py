"""Hands over work on a repository, prints what the agent says while it works, and merges the pull request if its checks pass."""

import asyncio
import os
import sys

from sandlot.client import Client


async def main(repository: str, prompt: str, *checks: str) -> int:
    async with Client(os.environ["PLATFORM_URL"], os.environ["PLATFORM_KEY"]) as client:
        task = await client.tasks.create(repository, prompt, agent=os.environ.get("AGENT", "claude"), checks=checks)
        async for news in task.events():
            if news.entry is not None and news.entry.kind in ("message", "question", "error"):
                print(f"{news.entry.kind}: {news.entry.text}")
            if news.task is not None and news.task.is_resting:
                break
        print(f"{task.info.state}: {task.info.reason or ''}")
        pull = task.info.pull_request
        if task.info.state != "review" or pull is None:
            return 1
        print((await task.diff()).patch)
        merged = await client.pull_requests.merge(repository, pull.number)
        print(f"pull request {pull.number} is {merged.state}")
        return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
