"""Contexts: each a kernel with a working directory and variables, which runs one cell at a time."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

from interpreter import memory
from interpreter.cells import Cell, lines
from interpreter.environment import SandboxEnvironment
from interpreter.kernel import Kernel, KernelDied, explain
from interpreter.languages import Language, normalize
from interpreter.outputs import failure
from interpreter.process import KernelProcess

log = logging.getLogger(__name__)
INTERRUPT_GRACE_S = 5.0
STARTS_AT_ONCE = 4


class UnknownContext(LookupError):
    """No context has that id."""


class BadRequest(ValueError):
    """What was asked for cannot be had: a language that is not installed, a directory that does not exist."""


class OutOfRoom(RuntimeError):
    """The sandbox has no memory for another kernel."""


class Context:
    def __init__(
        self,
        language: Language,
        cwd: str,
        *,
        state: Path,
        environment: SandboxEnvironment,
        guard: memory.Guard,
        process: KernelProcess | None = None,
    ) -> None:
        self.id = str(uuid.uuid4())
        self.language = language
        self.cwd = cwd
        self._state = state
        self._environment = environment
        self._guard = guard
        self._turn = asyncio.Lock()  # a cell, a restart: one after the other
        self._process = process  # of the first kernel, where it was started ahead
        self._kernel: Kernel | None = None
        self._running: Cell | None = None
        self._fresh = asyncio.Event()  # a kernel was started since somebody asked
        self._is_removed = False
        self._ending: tuple[str, str] | None = None  # why we end the kernel ourselves, for the cell that runs
        self._known: Mapping[str, str] = {}  # the sandbox's variables, as this kernel has them
        self._known_for: tuple[str | None] | None = None  # the token they were read with: another one, another sandbox
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        async with self._turn:
            await self._ready()

    def submit(self, cell: Cell) -> None:
        """The cell runs when it is its turn."""
        self._spawn(self._serve(cell))

    def reap(self) -> None:
        if self._kernel is not None:
            self._kernel.reap()

    async def abandon(self, cell: Cell) -> None:
        """The client is gone: a cell that waits is dropped, a cell that runs is interrupted."""
        await cell.abandon()
        if self._running is cell and self._kernel is not None and not cell.done.is_set():
            self._spawn(self._interrupt(cell, self._kernel))

    async def _interrupt(self, cell: Cell, kernel: Kernel) -> None:
        if kernel.language.interrupt != "never":
            kernel.interrupt()
            try:
                await asyncio.wait_for(cell.done.wait(), INTERRUPT_GRACE_S)
                return
            except TimeoutError:
                log.warning("a %s cell does not end when interrupted; its kernel is replaced", self.language.name)
        if not cell.done.is_set():
            kernel.kill()

    async def restart(self) -> None:
        """A new kernel, at once: a cell that runs ends, cells that wait run in the new one."""
        if self._running is None:
            async with self._turn:
                await self._drop_kernel()
                await self._ready()
            return
        self._fresh.clear()
        self._end_kernel("ContextRestarted", "The context was restarted while the cell ran")
        await self._fresh.wait()

    async def remove(self) -> None:
        self._is_removed = True
        self._end_kernel("ContextRemoved", "The context was removed while the cell ran")
        async with self._turn:
            await self._drop_kernel()

    def _end_kernel(self, name: str, value: str) -> None:
        """The cell that runs learns why, and sees to the next kernel."""
        self._ending = (name, value)
        if self._kernel is not None:
            self._kernel.kill()

    async def _drop_kernel(self) -> None:
        kernel, self._kernel = self._kernel, None
        self._known, self._known_for = {}, None
        if kernel is not None:
            await kernel.stop()

    async def _serve(self, cell: Cell) -> None:
        try:
            async with self._turn:
                if not cell.is_abandoned:
                    await self._run(cell)
        except Exception as error:
            log.exception("a cell could not be run")
            await cell.show(failure(type(error).__name__, f"The cell could not be run: {error}"))
        finally:
            await cell.end()

    async def _run(self, cell: Cell) -> None:
        self._running, self._ending = cell, None
        try:
            kernel = await self._ready()
            await self._meet_sandbox(kernel, cell.token)
            if cell.env:
                await kernel.run_quietly(self.language.assign(cell.env))
            if cell.is_abandoned:
                return
            with self._guard.watching(kernel):
                async for line in lines(kernel, cell.code):
                    await cell.show(line)
            await cell.end()
            if cell.env:
                before = {name: self._known.get(name, kernel.inherited.get(name)) for name in cell.env}
                await kernel.run_quietly(self.language.assign(before))
        except KernelDied as death:
            name, value = self._ending or explain(death, self.language.name)
            log.warning("%s: %s", name, value)
            await cell.show(failure(name, value))
            await cell.end()
            await self._drop_kernel()
            if not self._is_removed:
                await self._ready()
        finally:
            self._running = None
            self._fresh.set()

    async def _ready(self) -> Kernel:
        """The kernel, a new one if there is none or if it died since the last cell."""
        if self._is_removed:
            raise UnknownContext(f"Context {self.id} not found: it was removed")
        if self._kernel is not None and not self._kernel.alive:
            await self._drop_kernel()
        if self._kernel is None:
            process, self._process = self._process, None
            kernel = Kernel(process or KernelProcess(self.language, self.cwd, self._state))
            await kernel.start()
            self._kernel = kernel
            self._fresh.set()
        return self._kernel

    async def _meet_sandbox(self, kernel: Kernel, token: str | None) -> None:
        """Give the kernel the variables of the sandbox it is in. A saved state can wake up in many sandboxes."""
        if self._known_for == (token,):
            return
        found = await self._environment.read(token)
        if found is None:
            return
        gone = {name: kernel.inherited.get(name) for name in self._known if name not in found}
        await kernel.run_quietly("\n".join([self.language.assign({**found, **gone}), self.language.awaken]))
        self._known, self._known_for = found, (token,)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Contexts:
    """All contexts of the sandbox, in the order they were made; one per language is its default."""

    def __init__(
        self, *, languages: Mapping[str, Language], environment: SandboxEnvironment, state: Path, workdir: Path
    ) -> None:
        self._languages = languages
        self._environment = environment
        self._state = state
        self._workdir = str(workdir)
        self._guard = memory.Guard()
        self._all: dict[str, Context] = {}
        self._defaults: dict[str, str] = {}
        self._making_default: dict[str, asyncio.Lock] = {}
        self._starting = asyncio.Semaphore(STARTS_AT_ONCE)

    def __iter__(self) -> Iterator[Context]:
        return iter(list(self._all.values()))

    def get(self, context_id: str) -> Context:
        try:
            return self._all[context_id]
        except KeyError:
            raise UnknownContext(f"Context {context_id} not found") from None

    async def create(self, language: str | None, cwd: str | None, *, process: KernelProcess | None = None) -> Context:
        name = normalize(language)
        if name not in self._languages:
            known = ", ".join(sorted(self._languages))
            raise BadRequest(f"Language {name!r} is not installed in this template. Installed: {known}")
        where = cwd or self._workdir
        if not Path(where).is_dir():
            raise BadRequest(f"The working directory {where!r} does not exist. Create it first")
        context = Context(
            self._languages[name],
            where,
            state=self._state,
            environment=self._environment,
            guard=self._guard,
            process=process,
        )
        async with self._starting:
            if not memory.has_room():
                raise OutOfRoom("The sandbox has no memory for another context. Remove one, or use a larger template")
            await context.start()
        self._all[context.id] = context
        return context

    async def default(self, language: str | None, *, process: KernelProcess | None = None) -> Context:
        """The context of those who name none; made when it is first asked for, with a process that was started ahead if given."""
        name = normalize(language)
        async with self._making_default.setdefault(name, asyncio.Lock()):
            known = self._defaults.get(name)
            if known not in self._all:
                self._defaults[name] = known = (await self.create(name, None, process=process)).id
            return self._all[known]

    async def remove(self, context_id: str) -> None:
        # Listed until it is gone: only listed contexts learn that their kernel ended.
        await self.get(context_id).remove()
        self._all.pop(context_id, None)

    def reap(self) -> None:
        for context in self:
            context.reap()

    async def close(self) -> None:
        await asyncio.gather(*(context.remove() for context in self), return_exceptions=True)
        self._all.clear()
