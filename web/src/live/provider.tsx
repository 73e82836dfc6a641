// The stream as React sees it: who wants events, and whether what is shown is current.
import { useQueryClient } from "@tanstack/react-query";
import { createContext, useContext, useEffect, useState, useSyncExternalStore, type ReactNode } from "react";
import { LiveStream, type LiveEvent, type LiveStatus } from "./stream";

const Live = createContext<LiveStream | null>(null);

export function LiveProvider({ children }: { children: ReactNode }) {
  const queries = useQueryClient();
  const [stream, setStream] = useState<LiveStream | null>(null);
  useEffect(() => {
    const made = new LiveStream();
    setStream(made);
    const stop = made.onReset(() => void queries.invalidateQueries());
    return () => (stop(), made.end());
  }, [queries]);
  return stream ? <Live value={stream}>{children}</Live> : null;
}

export function useLive(): LiveStream {
  const stream = useContext(Live);
  if (!stream) throw new Error("there is no stream above this component");
  return stream;
}

export function useLiveStatus(): LiveStatus {
  const stream = useLive();
  return useSyncExternalStore(
    (tell) => stream.onStatus(tell),
    () => stream.status,
  );
}

/** Calls `take` for each event whose type begins with `prefix`. */
export function useLiveEvents(prefix: string, take: (event: LiveEvent) => void): void {
  const stream = useLive();
  useEffect(() => stream.onEvent((event) => event.type.startsWith(prefix) && take(event)), [stream, prefix, take]);
}

const OLD_MS = 5000;

/** Whether what is shown is so old that nobody should act on it. */
export function useIsOld(): boolean {
  const { state, since } = useLiveStatus();
  const [isOld, setOld] = useState(false);
  useEffect(() => {
    if (state !== "stale") return setOld(false);
    const timer = setTimeout(() => setOld(true), Math.max(0, since + OLD_MS - Date.now()));
    return () => clearTimeout(timer);
  }, [state, since]);
  return isOld;
}
