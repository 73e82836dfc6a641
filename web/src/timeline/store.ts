// A task's timeline: read page by page, then followed; entries with the same id are one item. Kept outside of React,
// because there may be tens of thousands of entries and several new ones a frame.
import { useEffect, useMemo, useSyncExternalStore } from "react";
import { api, ApiError, type Entry, type Task } from "../api/client";
import { backoff, readEvents } from "../live/sse";

export interface Item {
  seq: number; // of its first entry: its place, and its name in links
  entry: Entry;
}
export type FollowState = "loading" | "live" | "stale" | "failed";
const PAGE = 2000;

export class TimelineStore {
  items: Item[] = [];
  state: FollowState = "loading";
  since = Date.now();
  error: unknown = null;
  version = 0;
  private last = 0;
  private readonly places = new Map<string, number>();
  private readonly listeners = new Set<() => void>();
  private ended = new AbortController();
  private pending = false;

  constructor(
    readonly id: string,
    private readonly onTask: (task: Task) => void,
  ) {}

  subscribe = (tell: () => void) => {
    this.listeners.add(tell);
    return () => void this.listeners.delete(tell);
  };
  start(): void {
    this.ended = new AbortController();
    void this.run(this.ended.signal);
  }
  end(): void {
    this.ended.abort();
  }

  private async run(signal: AbortSignal): Promise<void> {
    let failures = 0;
    while (!signal.aborted) {
      try {
        if (this.state === "loading") await this.load(signal);
        await readEvents(`/tasks/${encodeURIComponent(this.id)}/events?after=${this.last}`, signal, (event) => this.take(event.name, event.id, event.data), () => {
          failures = 0;
          this.set("live");
        });
      } catch (error) {
        failures += 1;
        if (error instanceof ApiError && error.status >= 400 && error.status < 500) {
          this.error = error;
          return this.set("failed");
        }
      }
      if (signal.aborted) return;
      if (this.state === "live") this.set("stale");
      await backoff(failures, signal);
    }
  }

  private async load(signal: AbortSignal): Promise<void> {
    for (;;) {
      const page = await api.data(api.GET("/tasks/{id}/timeline", { params: { path: { id: this.id }, query: { after: this.last, limit: PAGE } }, signal }));
      page.entries.forEach((entry) => this.add(entry));
      if (page.entries.length < PAGE) return;
    }
  }

  private take(name: string, id: string | null, data: string): void {
    const found = JSON.parse(data) as Entry | (Task & { entry?: Entry });
    if (name === "state") {
      const { entry, ...task } = found as Task & { entry?: Entry };
      if (id !== null && entry) this.add(entry);
      this.onTask(task as Task);
    } else this.add(found as Entry);
  }

  private add(entry: Entry): void {
    if (entry.seq <= this.last) return; // it came before a reconnection already
    this.last = entry.seq;
    const name = nameOf(entry);
    const place = name ? this.places.get(name) : undefined;
    if (place !== undefined && !begins(entry)) {
      const known = this.items[place]!;
      const data = { ...known.entry.data, ...entry.data, ended_at: entry.at };
      this.items[place] = { seq: known.seq, entry: { ...entry, at: known.entry.at, text: entry.text || known.entry.text, data } };
    } else {
      if (name) this.places.set(name, this.items.length);
      this.items.push({ seq: entry.seq, entry });
    }
    this.changed();
  }

  private set(state: FollowState): void {
    if (this.state === state) return;
    this.state = state;
    this.since = Date.now();
    this.changed();
  }

  private changed(): void {
    if (this.pending) return;
    this.pending = true;
    setTimeout(() => {
      this.pending = false;
      this.version += 1;
      this.items = this.items.slice();
      this.listeners.forEach((tell) => tell());
    }, 40);
  }
}

/** Entries with the same name are one item: a command and its output, a step's begin and its end. */
function nameOf(entry: Entry): string | null {
  const id = entry.kind === "step" ? entry.data["name"] : entry.data["id"];
  return typeof id === "string" ? `${entry.attempt}/${entry.kind}/${id}` : null;
}

/** A step that is done again is an item of its own. */
function begins(entry: Entry): boolean {
  return entry.kind === "step" && entry.data["status"] === "running";
}

export function useTimeline(id: string, onTask: (task: Task) => void): TimelineStore {
  const store = useMemo(() => new TimelineStore(id, onTask), [id]); // eslint-disable-line
  useEffect(() => (store.start(), () => store.end()), [store]);
  useSyncExternalStore(store.subscribe, () => store.version);
  return store;
}
