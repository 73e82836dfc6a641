// The agent server: a WebSocket around the Claude Agent SDK, on port 3000.
//   node main.mjs                serve
//   node main.mjs token          print a new token that may use it
//   node main.mjs admit SHA256   let in a token that the caller made, by its hash
import fs from "node:fs";
import http from "node:http";
import os from "node:os";
import path from "node:path";
import { WebSocketServer } from "ws";
import { Admission } from "./admission.mjs";
import { Conversation } from "./conversation.mjs";
import { Journal } from "./journal.mjs";
import { Readers } from "./readers.mjs";

const STATE = process.env.AGENT_SERVER_STATE ?? "/var/lib/sandlot-agent-server";
const WORKSPACE = process.env.AGENT_SERVER_WORKSPACE ?? path.join(os.homedir(), "workspace");
const PORT = Number(process.env.AGENT_SERVER_PORT ?? 3000);
const IDENTITY = process.env.AGENT_SERVER_IDENTITY;
const SUBPROTOCOL = "sandlot.token.";
const MOST_MESSAGE = 16 << 20;

const admission = new Admission(STATE, IDENTITY);
const [action, argument] = process.argv.slice(2);
if (action === "token") console.log(admission.newToken());
else if (action === "admit") admission.admit(argument ?? "");
else serve();

function serve() {
  fs.mkdirSync(WORKSPACE, { recursive: true });
  const conversation = new Conversation(new Journal(path.join(STATE, "journal")), WORKSPACE);
  const readers = new Readers(conversation);
  const server = http.createServer((request, response) => answer(conversation, readers, request, response));
  const sockets = new WebSocketServer({
    noServer: true,
    maxPayload: MOST_MESSAGE,
    handleProtocols: (offered) => (offered.has("sandlot") ? "sandlot" : false),
  });
  server.on("upgrade", (request, socket, head) => {
    const url = new URL(request.url, "http://server");
    const problem = url.pathname === "/ws" ? (isAdmitted(request) ? "" : "401 Unauthorized") : "404 Not Found";
    if (problem) return socket.end(`HTTP/1.1 ${problem}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
    const after = url.searchParams.get("after");
    const known = after !== null && /^\d{1,15}$/.test(after) ? Math.min(Number(after), conversation.journal.last) : undefined;
    sockets.handleUpgrade(request, socket, head, (opened) => readers.take(opened, known));
  });
  server.listen(PORT, "0.0.0.0", () => console.log(`the agent server listens on port ${PORT}`));
}

function isAdmitted(request) {
  const bearer = /^Bearer (.+)$/.exec(request.headers.authorization ?? "")?.[1];
  const offered = (request.headers["sec-websocket-protocol"] ?? "").split(",").map((one) => one.trim());
  const named = offered.find((one) => one.startsWith(SUBPROTOCOL))?.slice(SUBPROTOCOL.length);
  return admission.allows(bearer ?? named);
}

async function answer(conversation, readers, request, response) {
  const reply = (status, body) => {
    response.writeHead(status, { "Content-Type": "application/json" });
    response.end(JSON.stringify(body));
  };
  const { pathname } = new URL(request.url, "http://server");
  if (pathname === "/health") return reply(200, { status: "ok", state: conversation.state, clients: readers.all.size });
  if (!isAdmitted(request)) return reply(401, { message: "send a token of this sandbox as Authorization: Bearer" });
  if (pathname !== "/config") return reply(404, { message: "there is /health, /config and the WebSocket /ws" });
  if (request.method === "GET") return reply(200, conversation.settings);
  try {
    conversation.configure(JSON.parse(await text(request)));
    reply(200, conversation.settings);
  } catch (error) {
    reply(400, { message: String(error.message).slice(0, 500) });
  }
}

async function text(request) {
  const pieces = [];
  let size = 0;
  for await (const piece of request) {
    size += piece.length;
    if (size > MOST_MESSAGE) throw new Error("the body is too large");
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString();
}
