// Builds a template of your own with E2B's builder: Node.js, packages, a server of yours that is up when a sandbox is ready.
//   npm install e2b tsx && npx tsx build.ts
import { defaultBuildLogger, Template, waitForPort } from "e2b";

const template = Template()
  .fromNodeImage()
  .setWorkdir("/home/user/app")
  .copy("package.json", "package.json")
  .npmInstall()
  .copy("server.mjs", "server.mjs")
  .setStartCmd("node /home/user/app/server.mjs", waitForPort(3000));

const built = await Template.build(template, {
  alias: "my-agent-server",
  cpuCount: 2,
  memoryMB: 1024,
  onBuildLogs: defaultBuildLogger(),
});
console.log(`${built.alias ?? "my-agent-server"} is built`);
