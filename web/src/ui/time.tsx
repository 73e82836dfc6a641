// Times as people read them. All of them on a page tick together, once a second at most.
import { Tooltip } from "@mantine/core";
import { useSyncExternalStore } from "react";

let now = Date.now();
const listeners = new Set<() => void>();
let timer: number | undefined;

function subscribe(tell: () => void) {
  listeners.add(tell);
  timer ??= window.setInterval(() => {
    now = Date.now();
    listeners.forEach((each) => each());
  }, 1000);
  return () => {
    listeners.delete(tell);
    if (!listeners.size) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

/** The time in milliseconds, in steps of `step`: a component that shows minutes is not drawn every second. */
export function useNow(step = 1000): number {
  return useSyncExternalStore(subscribe, () => Math.floor(now / step) * step);
}

export function span(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 && hours < 10 ? `${hours}h ${minutes % 60}m` : `${hours}h`;
  return `${Math.floor(hours / 24)}d`;
}

/** How long something took: short times exactly. */
export function took(ms: number): string {
  if (ms < 100) return `${Math.round(ms)} ms`;
  return ms < 10_000 ? `${(ms / 1000).toFixed(1)}s` : span(ms);
}

export function clock(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const pad = (n: number) => String(n).padStart(2, "0");
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  return h ? `${h}:${pad(m)}:${pad(s)}` : `${m}:${pad(s)}`;
}

export function timeOfDay(ms: number): string {
  return new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
}

export function full(at: string): string {
  return new Date(at).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });
}

/** "3m", with the exact time for those who ask. */
export function Ago({ at, suffix = "" }: { at: string; suffix?: string }) {
  const since = new Date(at).getTime();
  const passed = useNow(1000) - since;
  return (
    <Tooltip label={full(at)}>
      <time dateTime={at} className="num">
        {span(passed)}
        {suffix}
      </time>
    </Tooltip>
  );
}
