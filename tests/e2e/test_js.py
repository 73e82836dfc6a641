"""The JavaScript SDK and E2B's own command line, from npm, unmodified, against a real server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.e2e import npm
from tests.e2e.npm import run
from tests.e2e.server import Server, until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="session")
def modules() -> Path:
    return npm.installed()


SCRIPT = """
import { Sandbox, CommandExitError, NotFoundError } from 'e2b'
import assert from 'node:assert'
const until = async (f) => { for (let i = 0; i < 200; i++) { if (await f()) return; await new Promise(r => setTimeout(r, 50)) } throw new Error('never: ' + f) }

const sandbox = await Sandbox.create({ timeoutMs: 120_000, metadata: { from: 'js & co' }, envs: { FRUIT: 'pear' } })
assert.equal(await sandbox.isRunning(), true)

// commands
const lines = []
const done = await sandbox.commands.run('for i in 1 2 3; do echo $i-$FRUIT; sleep 0.1; done; echo bad >&2', { onStdout: (d) => { lines.push(d) } })
assert.equal(done.stdout, '1-pear\\n2-pear\\n3-pear\\n'); assert.equal(done.stderr, 'bad\\n'); assert.equal(lines.length, 3)
await assert.rejects(sandbox.commands.run('exit 4'), (e) => e instanceof CommandExitError && e.exitCode === 4)
const cat = await sandbox.commands.run('cat', { background: true, stdin: true })
await sandbox.commands.sendStdin(cat.pid, 'from js\\n'); await sandbox.commands.closeStdin(cat.pid)
assert.equal((await cat.wait()).stdout, 'from js\\n')
const sleeper = await sandbox.commands.run('sleep 100', { background: true, timeoutMs: 0 })
assert.ok((await sandbox.commands.list()).some((p) => p.pid === sleeper.pid))
assert.equal(await sandbox.commands.kill(sleeper.pid), true)
assert.equal((await sandbox.commands.run('id -u', { user: 'root', cwd: '/' })).stdout, '0\\n')

// files
const bytes = new Uint8Array(3_000_000).map((_, i) => i % 251)
await sandbox.files.write('/home/user/js/data.bin', bytes.buffer)
assert.deepEqual(Buffer.from(await sandbox.files.read('/home/user/js/data.bin', { format: 'bytes' })), Buffer.from(bytes))
await sandbox.files.write([{ path: 'js/a.txt', data: 'ä' }, { path: 'js/b.txt', data: 'b' }])
assert.equal(await sandbox.files.read('js/a.txt'), 'ä')
assert.deepEqual((await sandbox.files.list('/home/user/js')).map((e) => e.name).sort(), ['a.txt', 'b.txt', 'data.bin'])
await sandbox.files.rename('js/a.txt', 'js/c.txt'); assert.equal(await sandbox.files.exists('js/a.txt'), false)
await sandbox.files.remove('js/c.txt'); assert.equal(await sandbox.files.makeDir('js/dir'), true)
await assert.rejects(sandbox.files.read('js/none'), NotFoundError)
const upload = await fetch(await sandbox.uploadUrl('/home/user/signed.txt', { useSignatureExpiration: 60_000 }), (() => { const form = new FormData(); form.append('file', new Blob(['signed'])); return { method: 'POST', body: form } })())
assert.equal(upload.status, 200)
assert.equal(await (await fetch(await sandbox.downloadUrl('/home/user/signed.txt', { useSignatureExpiration: 60_000 }))).text(), 'signed')

// watching
const events = []
const watch = await sandbox.files.watchDir('/home/user/js', (e) => { events.push(`${e.type} ${e.name}`) }, { recursive: true })
await sandbox.files.write('js/dir/seen.txt', 'x')
await until(() => events.includes('create dir/seen.txt')); await watch.stop()

// a terminal
let screen = ''
const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: (d) => { screen += Buffer.from(d).toString() } })
await sandbox.pty.resize(terminal.pid, { cols: 100, rows: 30 })
await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('stty size\\n'))
await until(() => screen.includes('30 100'))
await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('exit\\n')); await terminal.wait()

// lists, information, time, numbers
const pages = Sandbox.list({ query: { metadata: { from: 'js & co' } }, limit: 1 })
assert.deepEqual((await pages.nextItems()).map((s) => s.sandboxId), [sandbox.sandboxId]); assert.equal(pages.hasNext, false)
const info = await sandbox.getInfo(); await sandbox.setTimeout(240_000)
assert.ok((await sandbox.getInfo()).endAt > info.endAt)
const again = await Sandbox.connect(sandbox.sandboxId); assert.equal((await again.commands.run('cat js/b.txt')).stdout, 'b')
assert.ok(Array.isArray(await sandbox.getMetrics()))

// its end, while a command runs
const running = sandbox.commands.run('sleep 100'); const ended = assert.rejects(running, /end of life|not running|terminated|not found/i)
await new Promise((r) => setTimeout(r, 300)); assert.equal(await sandbox.kill(), true); await ended
assert.equal(await sandbox.isRunning(), false); assert.equal(await Sandbox.kill(sandbox.sandboxId), false)
console.log('all of it')
process.exit(0)
"""


def test_the_javascript_sdk(server: Server, modules: Path) -> None:
    script = modules / f"e2e-{server.port}.mjs"
    script.write_text(SCRIPT)
    try:
        assert run(server, modules, str(script)).stdout.splitlines()[-1] == "all of it"
    finally:
        script.unlink()
    assert server.running() == []


def test_the_command_line_of_e2b(container_server: Server, modules: Path) -> None:
    server = container_server
    e2b = npm.e2b(modules)
    sandbox = server.create(metadata={"n": "cli"})
    listed = run(server, modules, e2b, "sandbox", "list").stdout
    assert sandbox.sandbox_id in listed
    rows = json.loads(run(server, modules, e2b, "sandbox", "list", "--format", "json").stdout)
    assert [row["sandboxId"] for row in rows] == [sandbox.sandbox_id]
    said = run(server, modules, e2b, "sandbox", "exec", sandbox.sandbox_id, "echo", "from the cli")
    assert "from the cli" in said.stdout
    assert run(server, modules, e2b, "sandbox", "exec", sandbox.sandbox_id, "exit 3", check=False).returncode == 3
    assert "creating from base" in run(server, modules, e2b, "sandbox", "logs", sandbox.sandbox_id).stdout
    run(server, modules, e2b, "sandbox", "metrics", sandbox.sandbox_id)
    run(server, modules, e2b, "sandbox", "info", sandbox.sandbox_id)
    run(server, modules, e2b, "sandbox", "kill", sandbox.sandbox_id)
    until(lambda: sandbox.is_running() is False)
    assert run(server, modules, e2b, "sandbox", "kill", "inothing0", check=False).stderr
    assert "base" in run(server, modules, e2b, "template", "list").stdout
