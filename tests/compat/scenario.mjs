// One scenario per method of the JavaScript SDKs, of any release: prints how each went as JSON.
import { createRequire } from 'node:module'
import https from 'node:https'

const kind = process.argv[2]
const require = createRequire(process.cwd() + '/')
const sdk = require(kind === 'js' ? 'e2b' : '@e2b/code-interpreter')
const Sandbox = sdk.Sandbox
class Missing extends Error {}
const SERVICE = `
const http = require('node:http'), crypto = require('node:crypto')
const server = http.createServer((_, answer) => answer.end('hello'))
server.on('upgrade', (request, socket) => {
  const accept = crypto.createHash('sha1').update(request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64')
  socket.write('HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: ' + accept + '\\r\\n\\r\\n')
  socket.once('data', (frame) => {
    const mask = frame.subarray(2, 6), text = frame.subarray(6).map((byte, i) => byte ^ mask[i % 4])
    socket.write(Buffer.concat([Buffer.from([0x81, text.length]), text]))
  })
})
server.listen(8000)
`
const ensure = (fact, why) => { if (!fact) throw new Error(why ?? 'not so') }
const get = (address) => new Promise((resolve, reject) => {
  https.get(address, (answer) => { let text = ''; answer.on('data', (part) => (text += part)); answer.on('end', () => resolve(text)) }).on('error', reject)
})
let sandbox
const scenarios = {
  async create() { sandbox = await Sandbox.create({ timeoutMs: 300_000 }); ensure(await sandbox.isRunning()) },
  async run() {
    ensure((await sandbox.commands.run('echo $((6*7))')).stdout === '42\n')
    const failed = await sandbox.commands.run('exit 3').then(() => null, (error) => error)
    ensure(failed?.exitCode === 3 || failed?.result?.exitCode === 3, String(failed))
  },
  async files() {
    await sandbox.files.write('/home/user/file', 'content')
    ensure((await sandbox.files.read('/home/user/file')) === 'content')
    ensure((await sandbox.files.list('/home/user')).some((entry) => entry.name === 'file'))
    await sandbox.files.remove('/home/user/file')
    ensure(!(await sandbox.files.exists('/home/user/file')))
  },
  async list() {
    const found = await Sandbox.list()
    const rows = Array.isArray(found) ? found : await found.nextItems()
    ensure(rows.some((row) => row.sandboxId.split('-')[0] === sandbox.sandboxId.split('-')[0]))
  },
  async timeout() { await sandbox.setTimeout(200_000) },
  async connect() {
    sandbox = await Sandbox.connect(sandbox.sandboxId)
    ensure((await sandbox.commands.run('echo again')).stdout === 'again\n')
  },
  async get_host() {
    await sandbox.files.write('/home/user/service.cjs', SERVICE)
    await sandbox.commands.run('node /home/user/service.cjs', { background: true })
    const deadline = Date.now() + 30_000
    while (true) {
      try { if ((await get('https://' + sandbox.getHost(8000))) === 'hello') return } catch (error) { if (Date.now() > deadline) throw error }
      ensure(Date.now() < deadline, 'the service did not answer')
      await new Promise((resolve) => setTimeout(resolve, 300))
    }
  },
  async websocket() {
    await new Promise((resolve, reject) => {
      const headers = { Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==', 'Sec-WebSocket-Version': '13' }
      const request = https.request('https://' + sandbox.getHost(8000), { headers })
      request.on('error', reject)
      request.on('response', (answer) => reject(new Error('status ' + answer.statusCode)))
      request.on('upgrade', (_, socket) => {
        socket.write(Buffer.from([0x81, 0x82, 0, 0, 0, 0, 0x68, 0x69]))
        socket.once('data', (frame) => { socket.destroy(); frame.subarray(2).toString() === 'hi' ? resolve() : reject(new Error('echo')) })
      })
      request.end()
    })
  },
  async pause() {
    const pause = sandbox.pause ?? sandbox.betaPause
    if (!pause) throw new Missing()
    await sandbox.commands.run('echo kept > /tmp/state')
    await pause.call(sandbox)
  },
  async resume() {
    if (!sandbox.pause && !sandbox.betaPause) throw new Missing()
    sandbox = await (Sandbox.resume ?? Sandbox.connect).call(Sandbox, sandbox.sandboxId)
    ensure((await sandbox.commands.run('cat /tmp/state')).stdout === 'kept\n')
  },
  async code() {
    const done = await sandbox.runCode('x = 20\nx * 2 + 2')
    ensure(done.text === '42', JSON.stringify(done))
    ensure((await sandbox.runCode('print(x)')).logs.stdout[0] === '20\n')
    ensure((await sandbox.runCode('1/0')).error.name === 'ZeroDivisionError')
  },
  async chart() {
    const done = await sandbox.runCode('import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()')
    ensure(done.results[0]?.png)
  },
  async kill() { await sandbox.kill(); ensure(!(await sandbox.isRunning())) },
  async template_build() {
    if (!sdk.Template) throw new Missing()
    const name = 'compat-' + Math.random().toString(36).slice(2, 10)
    const recipe = sdk.Template().fromBaseImage().runCmd('echo built > /home/user/how')
    const options = { cpuCount: 1, memoryMB: 512 }
    try { await sdk.Template.build(recipe, name, options) } catch (error) {
      if (!(error instanceof TypeError) && !/alias|name|undefined/i.test(String(error))) throw error
      await sdk.Template.build(recipe, { alias: name, ...options })
    }
    const made = await Sandbox.create(name, { timeoutMs: 60_000 })
    try { ensure((await made.commands.run('cat /home/user/how')).stdout === 'built\n') } finally { await made.kill() }
  },
}
const methods = kind === 'js'
  ? ['create', 'run', 'files', 'list', 'timeout', 'connect', 'get_host', 'websocket', 'pause', 'resume', 'kill', 'template_build']
  : ['create', 'run', 'files', 'code', 'chart', 'connect', 'pause', 'resume', 'kill']
for (const method of methods) {
  let outcome
  try { await scenarios[method](); outcome = { ok: true } } catch (error) {
    outcome = error instanceof Missing ? { ok: null } : { ok: false, why: String(error).slice(0, 300) }
    if (outcome.ok === false) console.error(error)
  }
  console.log(JSON.stringify({ method, ...outcome }))
  if (method === 'create' && !outcome.ok) break
}
process.exit(0)
