// The conversation: one agent, driven by the Claude Agent SDK, whose messages all go into the journal.
import crypto from "node:crypto";
import { query } from "@anthropic-ai/claude-agent-sdk";

const SETTINGS = ["env", "model", "systemPrompt", "allowedTools", "disallowedTools", "maxTurns", "mcpServers", "permissionMode"];
const BYPASS = "bypassPermissions";

export class Conversation {
  constructor(journal, cwd) {
    this.journal = journal;
    this.cwd = cwd;
    this.settings = {};
    this.state = "idle";
    this.approvals = new Map();
    this.session = undefined;
    this.accepted = new Map();
    this.running = undefined;
    this.#remember();
  }

  /** Settings of the next start of the agent. Throws for what is unknown. */
  configure(settings) {
    const unknown = Object.keys(settings).filter((name) => !SETTINGS.includes(name));
    if (unknown.length) throw new Error(`unknown settings: ${unknown.join(", ")}; known are ${SETTINGS.join(", ")}`);
    if (this.state !== "idle") throw new Error("the agent works; wait until it is idle, or interrupt it");
    this.settings = { ...this.settings, ...settings };
    if (!this.running) return;
    this.running.input.close(); // the next message starts it anew, with its memory
    this.running = undefined;
  }

  /** Takes a message of the user; the same `uuid` is taken once. Returns its number in the journal. */
  say(data) {
    const message = typeof data === "string" ? { role: "user", content: data } : data?.message;
    if (message?.role !== "user" || message.content === undefined) throw new Error("data must be a user message of the SDK");
    const uuid = data.uuid ?? crypto.randomUUID();
    if (this.accepted.has(uuid)) return this.accepted.get(uuid);
    const sent = { type: "user", uuid, message, parent_tool_use_id: null, session_id: this.session ?? "" };
    const frame = this.journal.append({ type: "user_message", data: sent });
    this.accepted.set(uuid, frame.seq);
    this.running ??= this.#start();
    this.running.input.push(sent);
    this.#become("running");
    return frame.seq;
  }

  async interrupt() {
    for (const requestId of [...this.approvals.keys()]) this.answer(requestId, { behavior: "deny", message: "interrupted" });
    await this.running?.query.interrupt();
  }

  answer(requestId, result) {
    const asked = this.approvals.get(requestId);
    if (!asked) throw new Error(`nobody waits for an answer to ${String(requestId).slice(0, 80)}`);
    this.approvals.delete(requestId);
    const allowed = result.behavior === "allow";
    this.journal.append({ type: "approval_resolved", requestId, behavior: allowed ? "allow" : "deny" });
    this.#become("running");
    asked.resolve(
      allowed
        ? { behavior: "allow", updatedInput: result.updatedInput ?? asked.input }
        : { behavior: "deny", message: String(result.message ?? "the user does not allow it") },
    );
  }

  async setModel(model) {
    this.settings.model = model;
    await this.running?.query.setModel(model);
  }

  async setMode(mode) {
    if (mode === BYPASS || this.#mode === BYPASS) return this.configure({ permissionMode: mode });
    this.settings.permissionMode = mode;
    await this.running?.query.setPermissionMode(mode);
  }

  /** The sandbox is the boundary: unless somebody wants to be asked, nobody is. */
  get #mode() {
    return this.settings.permissionMode ?? BYPASS;
  }

  #start() {
    const input = new Queue();
    const running = { input };
    running.query = query({
      prompt: input,
      options: {
        settingSources: ["user", "project"],
        ...this.settings,
        cwd: this.cwd,
        env: { ...process.env, IS_SANDBOX: "1", DISABLE_AUTOUPDATER: "1", ...this.settings.env },
        permissionMode: this.#mode,
        includePartialMessages: true,
        ...(this.#mode === BYPASS
          ? { allowDangerouslySkipPermissions: true }
          : { canUseTool: (tool, given, about) => this.#ask(tool, given, about) }),
        ...(this.session ? { resume: this.session } : {}),
      },
    });
    this.#follow(running);
    return running;
  }

  async #follow(running) {
    try {
      for await (const message of running.query) {
        if (typeof message.session_id === "string" && message.session_id) this.session = message.session_id;
        this.journal.append({ type: "sdk_message", session: this.session, data: message });
        if (message.type === "result") this.#become("idle");
      }
    } catch (error) {
      this.journal.append({ type: "error", message: String(error?.message ?? error).slice(0, 2000) });
    }
    if (this.running === running) {
      this.running = undefined;
      this.#become("idle");
    }
  }

  #ask(tool, input, about) {
    const requestId = crypto.randomUUID();
    return new Promise((resolve) => {
      this.approvals.set(requestId, { resolve, input });
      about.signal?.addEventListener("abort", () => {
        if (this.approvals.has(requestId)) this.answer(requestId, { behavior: "deny", message: "interrupted" });
      });
      const { title, suggestions } = about;
      this.journal.append({ type: "approval_request", requestId, tool, input, title, suggestions });
      this.#become("waiting");
    });
  }

  #become(state) {
    if (this.state === state) return;
    this.state = state;
    this.journal.append({ type: "state", state });
  }

  /** What an earlier run of this server left: the SDK's session, and which messages it had taken. */
  #remember() {
    for (let seq = this.journal.first; seq <= this.journal.last; seq += 1) {
      const frame = JSON.parse(this.journal.line(seq));
      if (frame.session) this.session = frame.session;
      if (frame.type === "user_message") this.accepted.set(frame.data.uuid, seq);
      if (frame.type === "state") this.state = frame.state;
    }
    this.#become("idle");
  }
}

/** An async iterable that ends when it is closed. */
class Queue {
  #items = [];
  #wake = () => {};
  #closed = false;

  push(item) {
    this.#items.push(item);
    this.#wake();
  }

  close() {
    this.#closed = true;
    this.#wake();
  }

  async *[Symbol.asyncIterator]() {
    while (true) {
      while (this.#items.length) yield this.#items.shift();
      if (this.#closed) return;
      await new Promise((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}
