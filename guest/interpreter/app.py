"""The door: the HTTP routes that the code-interpreter SDKs call."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiohttp import web

from interpreter.cells import Cell
from interpreter.contexts import BadRequest, Context, Contexts, OutOfRoom, UnknownContext
from interpreter.outputs import KEEPALIVE, encode
from interpreter.process import KernelProcess

log = logging.getLogger(__name__)
KEEPALIVE_S = 5.0
MAX_BODY = 64 << 20
CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "*",
    "Access-Control-Allow-Headers": "*",
}
CONTEXTS = web.AppKey("contexts", Contexts)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def serve(contexts: Contexts, door: socket.socket, first: Sequence[KernelProcess]) -> None:
    """Until a signal to end. Whoever comes before the first kernels are up waits at the door, so an answer means ready."""
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    loop.add_signal_handler(signal.SIGCHLD, contexts.reap)
    await asyncio.gather(*(_boot(contexts, process) for process in first))
    runner = web.AppRunner(application(contexts), handler_cancellation=True, access_log=None)
    await runner.setup()
    try:
        await web.SockSite(runner, door, shutdown_timeout=1).start()
        print(f"listening on {door.getsockname()[1]}", flush=True)
        await ending.wait()
    finally:
        await contexts.close()
        await runner.cleanup()


async def _boot(contexts: Contexts, process: KernelProcess) -> None:
    """A language that does not start is missing; the others still work."""
    try:
        await contexts.default(process.language.name, process=process)
    except Exception as error:
        log.error("no default context for %s: %s", process.language.name, error)
        await asyncio.to_thread(process.end)


def application(contexts: Contexts) -> web.Application:
    app = web.Application(client_max_size=MAX_BODY, middlewares=[_answer_errors, _allow_browsers])
    app[CONTEXTS] = contexts
    app.router.add_get("/health", _health)
    app.router.add_post("/execute", _execute)
    app.router.add_post("/contexts", _create)
    app.router.add_get("/contexts", _list)
    app.router.add_post("/contexts/{id}/restart", _restart)
    app.router.add_delete("/contexts/{id}", _remove)
    return app


@web.middleware
async def _allow_browsers(request: web.Request, handler: Handler) -> web.StreamResponse:
    if request.method == "OPTIONS":
        return web.Response(headers=CORS)
    response = await handler(request)
    if not response.prepared:
        response.headers.update(CORS)
    return response


@web.middleware
async def _answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except UnknownContext as error:
        return web.Response(status=404, text=str(error))
    except BadRequest as error:
        return web.Response(status=400, text=str(error))
    except OutOfRoom as error:
        return web.Response(status=507, text=str(error))
    except web.HTTPException:
        raise
    except Exception as error:
        log.exception("%s %s failed", request.method, request.path)
        return web.Response(status=500, text=f"{type(error).__name__}: {error}")


async def _health(request: web.Request) -> web.Response:
    return web.json_response("OK")


async def _execute(request: web.Request) -> web.StreamResponse:
    body = await _body(request)
    code, env = body.get("code"), body.get("env_vars") or {}
    context_id, language = _text(body, "context_id"), _text(body, "language")
    if not isinstance(code, str):
        raise BadRequest("`code` must be given, as a string")
    if not isinstance(env, dict):
        raise BadRequest("`env_vars` must be an object of strings")
    if context_id and language:
        raise BadRequest("Only one of context_id or language can be provided")
    contexts = request.app[CONTEXTS]
    context = contexts.get(context_id) if context_id else await contexts.default(language)
    variables = {str(name): str(value) for name, value in env.items()}
    return await _stream(request, context, Cell(code, variables, request.headers.get("X-Access-Token")))


async def _stream(request: web.Request, context: Context, cell: Cell) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson", "Cache-Control": "no-store", **CORS})
    context.submit(cell)
    try:
        await response.prepare(request)
        while (lines := await cell.next(KEEPALIVE_S)) != b"":
            await response.write(lines if lines is not None else encode(KEEPALIVE))
        await response.write_eof()
    except ConnectionError:
        log.info("a client left before its cell ended")
    finally:
        # Also when this handler is cancelled, which is how aiohttp reports that the client is gone.
        await asyncio.shield(context.abandon(cell))
    return response


async def _create(request: web.Request) -> web.Response:
    body = await _body(request)
    return web.json_response(_entry(await request.app[CONTEXTS].create(_text(body, "language"), _text(body, "cwd"))))


async def _list(request: web.Request) -> web.Response:
    return web.json_response([_entry(context) for context in request.app[CONTEXTS]])


async def _restart(request: web.Request) -> web.Response:
    await asyncio.shield(request.app[CONTEXTS].get(request.match_info["id"]).restart())
    return web.json_response(None)


async def _remove(request: web.Request) -> web.Response:
    await asyncio.shield(request.app[CONTEXTS].remove(request.match_info["id"]))
    return web.json_response(None)


def _entry(context: Context) -> dict[str, str]:
    return {"id": context.id, "language": context.language.name, "cwd": context.cwd}


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        body = await request.json() if request.can_read_body else {}
    except ValueError as error:
        raise BadRequest(f"The body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadRequest("The body must be a JSON object")
    return body


def _text(body: dict[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise BadRequest(f"`{name}` must be a string")
    return value or None
