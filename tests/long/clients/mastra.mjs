import { createRequire } from 'node:module'
const require = createRequire(process.cwd() + '/')
const { E2BSandbox } = require('@mastra/e2b')

const sandbox = new E2BSandbox({ apiKey: process.env.E2B_API_KEY, template: 'base' })
await sandbox._start?.() ?? (await sandbox.start())
try {
  const done = await sandbox.executeCommand('echo', ['$((6*7))'])
  const shell = await sandbox.executeCommand('sh', ['-c', 'echo $((6*7))'])
  console.log('answer', shell.stdout, done.exitCode)
} finally {
  await (sandbox._destroy?.() ?? sandbox.destroy())
}
process.exit(0)
