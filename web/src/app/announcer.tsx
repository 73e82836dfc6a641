// One polite live region: says what changed its state, for those who do not see the board.
import { useCallback, useRef, useState } from "react";
import type { Task } from "../api/client";
import { useLiveEvents } from "../live/provider";
import type { LiveEvent } from "../live/stream";
import { STATE_NAMES } from "../tasks/lanes";

export function StateAnnouncer() {
  const [words, setWords] = useState("");
  const timer = useRef<number | undefined>(undefined);
  const take = useCallback((event: LiveEvent) => {
    const task = event.data["task"] as Task;
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => setWords(`${task.title}: ${STATE_NAMES[task.state]}`), 400);
  }, []);
  useLiveEvents("task.state", take);
  return <div className="hidden-text" aria-live="polite">{words}</div>;
}
