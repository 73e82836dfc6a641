// Reads server-sent events by fetch: unlike EventSource it sees every event's name, comments, and why it was refused.
import { send } from "../api/client";

export interface ServerEvent {
  id: string | null;
  name: string;
  data: string;
}

const SILENCE_MS = 40_000; // the server says something at least every 15 s

/** Runs until the stream ends, fails or is aborted. `onAlive` is called for everything that comes, comments too. */
export async function readEvents(
  url: string,
  signal: AbortSignal,
  onEvent: (event: ServerEvent) => void,
  onAlive: () => void,
): Promise<void> {
  const silence = new AbortController();
  const both = AbortSignal.any([signal, silence.signal]);
  let timer = window.setTimeout(() => silence.abort(), SILENCE_MS);
  const alive = () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => silence.abort(), SILENCE_MS);
    onAlive();
  };
  try {
    const response = await send(url, { signal: both, headers: { accept: "text/event-stream" }, cache: "no-store" });
    if (!response.body) return;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    alive();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      alive();
      const parts = (rest + value).split("\n\n");
      rest = parts.pop() ?? "";
      for (const part of parts) {
        const event = parse(part);
        if (event) onEvent(event);
      }
    }
  } finally {
    clearTimeout(timer);
  }
}

export function parse(block: string): ServerEvent | null {
  let id: string | null = null;
  let name = "message";
  const lines: string[] = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("id: ")) id = line.slice(4);
    else if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) lines.push(line.slice(6));
  }
  return lines.length ? { id, name, data: lines.join("\n") } : null;
}

/** Wait, longer after each failure, but never long: somebody looks at it. */
export function backoff(failures: number, signal: AbortSignal): Promise<void> {
  const ms = Math.min(500 * 2 ** failures, 5000) * (0.8 + Math.random() * 0.4);
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
