import { createRequire } from 'node:module'
const require = createRequire(process.cwd() + '/')
const { e2b } = require('@computesdk/e2b')

const provider = e2b({ apiKey: process.env.E2B_API_KEY })
const sandbox = await provider.sandbox.create()
try {
  await sandbox.filesystem.writeFile('/home/user/six.py', 'print(6 * 7)')
  const done = await sandbox.runCommand('python3 /home/user/six.py')
  console.log('answer', done.stdout)
} finally {
  await sandbox.destroy()
}
