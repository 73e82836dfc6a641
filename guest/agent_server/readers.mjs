// The clients: each reads the journal from its own place and at its own pace; one of them at a time writes.
const FIRST_WORD_MS = 1000; // how long we wait for a client to say where it goes on
const MOST_BUFFERED = 1 << 20;
const PING_MS = 20_000;

export class Readers {
  constructor(conversation) {
    this.conversation = conversation;
    this.journal = conversation.journal;
    this.all = new Set();
    this.writer = undefined;
  }

  take(socket, after) {
    const reader = { socket, after: after ?? this.journal.last, begun: after !== undefined, alive: true };
    this.all.add(reader);
    const { state, session, approvals } = this.conversation;
    const pending = [...approvals.keys()];
    send(socket, { type: "connected", seq: this.journal.last, session, state, pending, writer: this.writer !== undefined });
    socket.on("message", (data) => this.#hear(reader, data));
    socket.on("pong", () => (reader.alive = true));
    const ping = setInterval(() => {
      if (!reader.alive) return socket.terminate();
      reader.alive = false;
      socket.ping();
    }, PING_MS);
    socket.on("close", () => {
      clearInterval(ping);
      this.all.delete(reader);
      if (this.writer === reader) this.writer = undefined;
    });
    socket.on("error", () => socket.terminate());
    setTimeout(() => this.#begin(reader), reader.begun ? 0 : FIRST_WORD_MS);
  }

  async #begin(reader) {
    if (reader.pumping) return;
    reader.pumping = true;
    while (reader.socket.readyState === reader.socket.OPEN) {
      if (reader.socket.bufferedAmount > MOST_BUFFERED) {
        await new Promise((resolve) => setTimeout(resolve, 20));
      } else if (reader.after + 1 < this.journal.first) {
        send(reader.socket, { type: "gap", from: reader.after + 1, to: this.journal.first - 1 });
        reader.after = this.journal.first - 1;
      } else if (reader.after < this.journal.last) {
        reader.after += 1;
        reader.socket.send(this.journal.line(reader.after));
      } else {
        await this.journal.next();
      }
    }
  }

  async #hear(reader, data) {
    try {
      const said = JSON.parse(data.toString());
      if (said.type === "attach" && !reader.pumping) {
        if (!Number.isInteger(said.after) || said.after < 0) throw new Error("after must be the number of a frame");
        reader.after = Math.min(said.after, this.journal.last);
      }
      this.#begin(reader);
      await this.#act(reader, said);
    } catch (error) {
      send(reader.socket, { type: "error", message: String(error.message ?? error).slice(0, 500) });
    }
  }

  async #act(reader, said) {
    const { conversation } = this;
    if (said.type === "attach") return;
    if (said.type === "take") {
      const before = this.writer;
      this.writer = reader;
      if (before && before !== reader) send(before.socket, { type: "writer", you: false });
      send(reader.socket, { type: "writer", you: true });
      return;
    }
    this.writer ??= reader;
    if (this.writer !== reader) throw new Error('another client writes; send {"type": "take"} to write instead');
    if (said.type === "user_message") {
      const seq = conversation.say(said.data);
      send(reader.socket, { type: "accepted", uuid: said.data?.uuid, frame: seq });
    } else if (said.type === "interrupt") await conversation.interrupt();
    else if (said.type === "approve") conversation.answer(said.requestId, said);
    else if (said.type === "set_model") await conversation.setModel(said.model);
    else if (said.type === "set_mode") await conversation.setMode(said.mode);
    else if (said.type === "release") this.writer = undefined;
    else throw new Error(`there is no message of type ${String(said.type).slice(0, 40)}`);
  }
}

function send(socket, frame) {
  if (socket.readyState === socket.OPEN) socket.send(JSON.stringify(frame));
}
