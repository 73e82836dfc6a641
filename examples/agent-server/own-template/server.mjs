// The smallest agent server: one client, its prompts in, the SDK's messages out. The stock template `agent-server` does more:
// it keeps what was said, lets clients come back, knows who may write, and asks before it acts.
import { query } from "@anthropic-ai/claude-agent-sdk";
import { WebSocketServer } from "ws";

const server = new WebSocketServer({ port: 3000 });
server.on("connection", (socket) => {
  socket.on("message", async (data) => {
    const { prompt, env } = JSON.parse(data.toString());
    try {
      const options = { env: { ...process.env, ...env, IS_SANDBOX: "1" }, permissionMode: "bypassPermissions", allowDangerouslySkipPermissions: true };
      for await (const message of query({ prompt, options })) socket.send(JSON.stringify(message));
    } catch (error) {
      socket.send(JSON.stringify({ type: "error", message: String(error) }));
    }
  });
});
