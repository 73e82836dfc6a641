// One stream of events for all tabs of this browser. One tab (which holds a lock) reads it and tells the others.
// A tab joins with the cursor of its snapshot: it gets what came since, or is told to read its snapshot again.
import { backoff, readEvents } from "./sse";

export interface LiveEvent {
  id: number;
  type: string;
  at: string;
  subject: { kind: string; id: string };
  data: Record<string, unknown>;
}
export type LiveStatus = { state: "connecting" | "live" | "stale"; since: number };
type Said =
  | { kind: "event"; prev: number; event: LiveEvent }
  | { kind: "status"; status: LiveStatus; cursor: number }
  | { kind: "join"; cursor: number }
  | { kind: "reset" };

const CHANNEL = "sandlot-live";
const KEPT = 2000;
const RESET = "events.reset"; // the log begins after our place: what came between is only in snapshots

export class LiveStream {
  status: LiveStatus = { state: "connecting", since: Date.now() };
  private cursor: number | null = null; // the newest event that this tab has seen; null before its first snapshot
  private isLeader = false;
  private leaderCursor = 0;
  private kept: LiveEvent[] = [];
  private keptFrom = 0; // every event after this one is in `kept`
  private readonly channel = new BroadcastChannel(CHANNEL);
  private readonly events = new Set<(event: LiveEvent) => void>();
  private readonly resets = new Set<() => void>();
  private readonly changes = new Set<() => void>();
  private readonly ended = new AbortController();
  private heard = Date.now();

  constructor() {
    this.channel.onmessage = (message: MessageEvent<Said>) => this.hear(message.data);
    window.setInterval(() => this.look(), 1000);
  }

  /** A snapshot was read: events up to its cursor are in it. The first one starts the stream. */
  begin(cursor: number): void {
    if (this.cursor !== null) return; // later snapshots are newer than the stream's place: rows know their revision
    this.cursor = cursor;
    this.channel.postMessage({ kind: "join", cursor } satisfies Said);
    void this.lead();
  }

  onEvent(listener: (event: LiveEvent) => void) {
    this.events.add(listener);
    return () => void this.events.delete(listener);
  }
  /** Something was missed: snapshots have to be read again. */
  onReset(listener: () => void) {
    this.resets.add(listener);
    return () => void this.resets.delete(listener);
  }
  onStatus(listener: () => void) {
    this.changes.add(listener);
    return () => void this.changes.delete(listener);
  }
  end(): void {
    this.ended.abort();
    this.channel.close();
  }

  private async lead(): Promise<void> {
    const work = () => {
      this.isLeader = true;
      this.leaderCursor = this.keptFrom = this.cursor ?? 0;
      return this.read();
    };
    // Plain HTTP at an address other than this machine has no locks: each tab then reads for itself.
    if (!navigator.locks) return work();
    await navigator.locks.request(CHANNEL, { signal: this.ended.signal }, work).catch(() => undefined);
  }

  private async read(): Promise<void> {
    const { signal } = this.ended;
    let failures = 0;
    while (!signal.aborted) {
      try {
        await readEvents(
          `/events?since=${this.leaderCursor}`,
          signal,
          (found) => this.take(JSON.parse(found.data) as LiveEvent),
          () => {
            failures = 0;
            this.tell({ state: "live", since: Date.now() });
          },
        );
      } catch {
        failures += 1;
      }
      if (signal.aborted) return;
      if (this.status.state === "live") this.tell({ state: "stale", since: Date.now() });
      await backoff(failures, signal);
    }
  }

  private take(event: LiveEvent): void {
    if (event.type === RESET) {
      this.channel.postMessage({ kind: "reset" } satisfies Said);
      return this.resets.forEach((tell) => tell());
    }
    const prev = this.leaderCursor;
    if (event.id <= prev) return;
    this.leaderCursor = event.id;
    this.kept.push(event);
    if (this.kept.length > KEPT) this.keptFrom = this.kept.shift()!.id;
    this.channel.postMessage({ kind: "event", prev, event } satisfies Said);
    this.give(event);
  }

  private hear(said: Said): void {
    if (said.kind === "join") {
      if (!this.isLeader) return;
      if (said.cursor < this.keptFrom) this.channel.postMessage({ kind: "reset" } satisfies Said);
      let prev = said.cursor;
      for (const event of this.kept) {
        if (event.id <= said.cursor) continue;
        this.channel.postMessage({ kind: "event", prev, event } satisfies Said);
        prev = event.id;
      }
      this.channel.postMessage({ kind: "status", status: this.status, cursor: this.leaderCursor } satisfies Said);
      return;
    }
    if (this.isLeader) return;
    this.heard = Date.now();
    if (said.kind === "status") {
      this.set(said.status);
    } else if (said.kind === "reset") {
      this.resets.forEach((tell) => tell());
    } else if (this.cursor !== null && said.event.id > this.cursor) {
      if (said.prev > this.cursor) this.resets.forEach((tell) => tell());
      this.give(said.event);
    }
  }

  private give(event: LiveEvent): void {
    if (this.cursor !== null && event.id <= this.cursor) return;
    this.cursor = event.id;
    this.events.forEach((tell) => tell(event));
  }

  private tell(status: LiveStatus): void {
    this.channel.postMessage({ kind: "status", status, cursor: this.leaderCursor } satisfies Said);
    this.set(status);
  }

  private set(status: LiveStatus): void {
    const changed = status.state !== this.status.state;
    this.status = status;
    if (changed) this.changes.forEach((tell) => tell());
  }

  /** A follower whose leader has been silent is stale: its tab may hang or be gone without having let go. */
  private look(): void {
    if (this.isLeader || this.cursor === null || this.status.state !== "live") return;
    if (Date.now() - this.heard > 45_000) this.set({ state: "stale", since: this.heard });
  }
}
