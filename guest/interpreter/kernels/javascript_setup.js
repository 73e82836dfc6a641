// Runs unseen in every new Deno kernel: gives cells what Node programs expect, and the server a way to know that all
// output has arrived.
await (async () => {
  const { createRequire } = await import("node:module");
  const { broadcast } = Deno.jupyter;
  const print = console.log.bind(console);
  const stream = (name) => (chunk, encoding, done) => {
    const text = typeof chunk === "string" ? chunk : new TextDecoder().decode(chunk);
    (name === "stdout" ? writeOut : writeError)(text);
    const callback = typeof encoding === "function" ? encoding : done;
    if (typeof callback === "function") queueMicrotask(() => callback());
    return true;
  };
  const send = (name) => (text) => {
    pending = pending.then(() => broadcast("stream", { name, text })).catch(() => undefined);
  };
  let pending = Promise.resolve();
  const writeOut = send("stdout");
  const writeError = send("stderr");
  globalThis.require ??= createRequire(`${process.cwd()}/`);
  process.stdout.write = stream("stdout");
  process.stderr.write = stream("stderr");
  Object.defineProperty(globalThis, Symbol.for("interpreter"), {
    value: {
      async flush(token) {
        print(token);
        await pending;
        await broadcast("display_data", { data: { "text/plain": token }, metadata: {}, transient: {} });
      },
    },
  });
})();
undefined
