import asyncio

from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions
from agents.sandbox import Manifest


async def main() -> None:
    client = E2BSandboxClient()
    session = await client.create(manifest=Manifest(), options=E2BSandboxClientOptions(sandbox_type="e2b", timeout=300))
    try:
        await session.start()
        done = await session.exec("echo $((6*7))")
        print("answer", done.stdout.decode() if isinstance(done.stdout, bytes) else done.stdout)
    finally:
        await client.delete(session)


asyncio.run(main())
