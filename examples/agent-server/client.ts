// Talk to an agent in a sandbox over a WebSocket, leave, pause the sandbox, and come back another day.
//   npx tsx client.ts "write a haiku to haiku.txt"          prints the sandbox's id at the end
//   npx tsx client.ts --sandbox ID "now in French"          resumes it, and goes on in the same conversation
// Variables: those of the E2B SDK, and AGENT_ENV, a JSON object of variables with which the agent finds its model.
import { randomUUID } from "node:crypto";
import { Sandbox } from "e2b";
import WebSocket from "ws";

const args = process.argv.slice(2);
const known = args[0] === "--sandbox" ? args.splice(0, 2)[1] : undefined;
const prompt = args.join(" ");

const sandbox = known
  ? await Sandbox.connect(known, { timeoutMs: 600_000 }) // resumed, if it is paused
  : await Sandbox.create("agent-server", { timeoutMs: 600_000 });
const token = (await sandbox.commands.run("agent-server token")).stdout.trim();
const secure = (process.env.AGENT_SCHEME ?? "https") === "https"; // "http" for a server without a certificate
const host = sandbox.getHost(3000);
const headers = { Authorization: `Bearer ${token}` };

if (!known) {
  const body = JSON.stringify({ env: JSON.parse(process.env.AGENT_ENV ?? "{}") });
  const answer = await fetch(`${secure ? "https" : "http"}://${host}/config`, { method: "POST", headers, body });
  if (!answer.ok) throw new Error(await answer.text());
}

const message = { uuid: randomUUID(), message: { role: "user", content: prompt } };
let last = 0;
let started = false;
while (!(await converse())) await new Promise((resolve) => setTimeout(resolve, 1000));
await sandbox.betaPause();
console.log(`\nsandbox ${sandbox.sandboxId} is paused; go on with --sandbox ${sandbox.sandboxId}`);

/** One connection: true when the answer is complete, false when it was cut. */
function converse(): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(`${secure ? "wss" : "ws"}://${host}/ws?after=${last}`, { headers });
    // Sent again after a reconnect: the same uuid is taken once.
    socket.on("open", () => socket.send(JSON.stringify({ type: "user_message", data: message })));
    socket.on("message", (data) => {
      const frame = JSON.parse(data.toString());
      if (frame.type !== "connected") last = frame.seq ?? last;
      if (frame.type === "user_message" && frame.data.uuid === message.uuid) started = true;
      if (frame.type === "sdk_message" && started && frame.data.type === "stream_event")
        process.stdout.write(frame.data.event.delta?.text ?? "");
      if (frame.type === "error") reject(new Error(frame.message));
      if (frame.type === "state" && frame.state === "idle" && started) {
        resolve(true);
        socket.close();
      }
    });
    socket.on("error", () => undefined); // followed by `close`
    socket.on("close", () => resolve(false));
  });
}
