// All tasks that this user may see: read once, then kept current by events. Rows know their revision.
import { useQuery, useQueryClient, type QueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef } from "react";
import { api, type Task } from "../api/client";
import { useLive, useLiveEvents } from "../live/provider";
import type { LiveEvent } from "../live/stream";

export interface TaskTable {
  byId: ReadonlyMap<string, Task>;
  cursor: number;
  isCut: boolean; // there are more than are shown
}
export const TASKS = ["tasks"] as const;
const MOST = 4000;

/** Events that come while the rows are read again: the answer may be older than they are. */
const meanwhile = new Set<LiveEvent[]>();

async function readAll(): Promise<TaskTable> {
  const came: LiveEvent[] = [];
  meanwhile.add(came);
  try {
    const table = await readRows();
    const byId = new Map(table.byId);
    came.forEach((event) => patch(byId, event));
    return { ...table, byId };
  } finally {
    meanwhile.delete(came);
  }
}

async function readRows(): Promise<TaskTable> {
  const byId = new Map<string, Task>();
  let cursor: number | null = null;
  let after: string | undefined;
  do {
    const page = await api.data(api.GET("/tasks", { params: { query: { limit: 500, after } } }));
    cursor ??= page.cursor;
    for (const task of page.tasks) byId.set(task.id, task);
    after = page.next ?? undefined;
  } while (after && byId.size < MOST);
  return { byId, cursor: cursor ?? 0, isCut: after !== undefined };
}

/** The table, followed live. Mounted once, in the shell; pages use `useTasks`. */
export function useFollowedTasks() {
  const live = useLive();
  const queries = useQueryClient();
  const query = useTasks();
  const cursor = query.data?.cursor;
  useEffect(() => {
    if (cursor !== undefined) live.begin(cursor);
  }, [live, cursor]);
  const waiting = useRef<LiveEvent[]>([]);
  const take = useCallback(
    (event: LiveEvent) => {
      // Many events come at once after a pause: one drawing for all of them.
      if (waiting.current.push(event) === 1) {
        setTimeout(() => apply(queries, waiting.current.splice(0)), 30);
      }
    },
    [queries],
  );
  useLiveEvents("task.", take);
  return query;
}

export function useTasks() {
  return useQuery({ queryKey: TASKS, queryFn: readAll, staleTime: Infinity, structuralSharing: false });
}

export function useTaskList(): readonly Task[] {
  const { data } = useTasks();
  return useMemo(() => (data ? [...data.byId.values()] : []), [data]);
}

function apply(queries: QueryClient, events: readonly LiveEvent[]): void {
  meanwhile.forEach((list) => list.push(...events));
  queries.setQueryData<TaskTable>(TASKS, (table) => {
    if (!table) return table;
    const byId = new Map(table.byId);
    events.forEach((event) => patch(byId, event));
    return { ...table, byId };
  });
}

function patch(byId: Map<string, Task>, event: LiveEvent): void {
  if (event.type === "task.deleted") byId.delete(event.subject.id);
  else put(byId, event.data["task"] as Task);
}

function put(byId: Map<string, Task>, task: Task): void {
  const known = byId.get(task.id);
  if (known && known.revision > task.revision) return;
  byId.set(task.id, { ...task, prompt: task.prompt || known?.prompt || "" });
}

/** A task that an answer of the server carried. */
export function keep(queries: QueryClient, task: Task): void {
  queries.setQueryData<TaskTable>(TASKS, (table) => {
    if (!table) return table;
    const byId = new Map(table.byId);
    put(byId, task);
    return { ...table, byId };
  });
}
