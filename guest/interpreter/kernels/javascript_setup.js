// Runs unseen in every new Deno kernel: gives cells what Node programs expect, sends output in pieces of a sensible size,
// gives the server a way to know that all output has arrived, and random numbers that no other sandbox draws.
await (async () => {
  const { createRequire } = await import("node:module");
  const { Console } = await import("node:console");
  const { Writable } = await import("node:stream");
  const { broadcast } = Deno.jupyter;
  const PIECE = 65536; // characters
  const PAUSE = 20; // milliseconds: lines printed closer together than that travel together

  // Whole lines go out at once, also while a cell never yields; Deno adds the newline. A line that is not finished can
  // only be broadcast, which takes a turn of the event loop.
  const print = { stdout: console.log.bind(console), stderr: console.error.bind(console) };
  let sent = Promise.resolve();
  const send = (name, text) => {
    sent = sent.then(() => broadcast("stream", { name, text })).catch(() => undefined);
  };

  let waiting = ""; // text of one stream; the other one's is sent before anything is added
  let stream = "stdout";
  let last = 0;
  let timer = 0;
  const flush = (everything) => {
    clearTimeout(timer);
    timer = 0;
    last = performance.now();
    const end = waiting.lastIndexOf("\n");
    if (end >= 0) print[stream](waiting.slice(0, end));
    waiting = waiting.slice(end + 1);
    if (!everything || !waiting) return;
    send(stream, waiting);
    waiting = "";
  };
  const write = (name, text) => {
    if (name !== stream) flush(true);
    stream = name;
    waiting += text;
    if (waiting.length >= PIECE || performance.now() - last > PAUSE) flush(false);
    if (waiting && !timer) timer = setTimeout(flush, PAUSE, true);
  };

  const decoder = new TextDecoder();
  const writer = (name) => (chunk, encoding, done) => {
    write(name, typeof chunk === "string" ? chunk : decoder.decode(chunk));
    const callback = typeof encoding === "function" ? encoding : done;
    if (typeof callback === "function") queueMicrotask(() => callback());
    return true;
  };
  const sink = (name) => {
    const target = new Writable();
    target.write = writer(name);
    return target;
  };
  const output = new Console({ stdout: sink("stdout"), stderr: sink("stderr"), colorMode: false });
  for (const name of ["log", "info", "debug", "warn", "error", "dir", "table", "trace", "group", "groupEnd", "time", "timeEnd", "timeLog", "count", "countReset", "assert"]) {
    if (typeof output[name] === "function") console[name] = output[name].bind(output);
  }
  process.stdout.write = writer("stdout");
  process.stderr.write = writer("stderr");

  // Math.random() goes on where a saved state left it, the same in every sandbox that begins with it, and cannot be seeded.
  // This one can (xoshiro128**).
  const state = new Uint32Array(4);
  const reseed = () => {
    // Deno's own generator asks the system for a new seed after every 64 KiB.
    for (let i = 0; i < 2; i++) crypto.getRandomValues(new Uint8Array(65536));
    crypto.getRandomValues(state);
  };
  const draw = () => {
    const product = Math.imul(state[1], 5);
    const drawn = Math.imul((product << 7) | (product >>> 25), 9);
    const shifted = state[1] << 9;
    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= shifted;
    state[3] = (state[3] << 11) | (state[3] >>> 21);
    return drawn;
  };
  const { random } = { random: () => ((draw() >>> 5) * 2 ** 26 + (draw() >>> 6)) / 2 ** 53 };
  Math.random = random;
  reseed();

  globalThis.require ??= createRequire(`${process.cwd()}/`);
  Object.defineProperty(globalThis, Symbol.for("interpreter"), {
    value: {
      reseed,
      async flush(token) {
        flush(true);
        print.stdout(token);
        await sent;
        await broadcast("display_data", { data: { "text/plain": token }, metadata: {}, transient: {} });
      },
    },
  });
})();
undefined
