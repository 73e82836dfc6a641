// What of all tasks is shown, by the address: it can be bookmarked, sent and saved under a name.
import { useMemo } from "react";
import { useSearchState, type Search } from "../../app/navigation";
import type { Task } from "../../api/client";
import { laneOf, LANES, since, type LaneId } from "../../tasks/lanes";

export const FIELDS = ["repository", "agent", "label", "user"] as const;
export type Field = (typeof FIELDS)[number];
export const NAMES: Record<Field, string> = { repository: "Repository", agent: "Agent", label: "Label", user: "Owner" };

export function valuesOf(task: Task, field: Field): readonly string[] {
  switch (field) {
    case "repository": return [task.repository];
    case "agent": return [task.agent];
    case "label": return task.labels;
    case "user": return [task.user_id];
  }
}

export function isFiltered(search: Search): boolean {
  return Boolean(search["q"]) || FIELDS.some((field) => search[field]);
}

export function useFiltered(tasks: readonly Task[]): readonly Task[] {
  const [search] = useSearchState();
  const { q, repository, agent, label, user } = search as Record<string, string | undefined>;
  return useMemo(() => {
    const words = (q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = { repository, agent, label, user };
    return tasks.filter(
      (task) =>
        FIELDS.every((field) => !wanted[field] || valuesOf(task, field).includes(wanted[field])) &&
        words.every((word) => `${task.title} ${task.repository} ${task.id} ${task.last_action ?? ""} ${task.reason ?? ""}`.toLowerCase().includes(word)),
    );
  }, [tasks, q, repository, agent, label, user]);
}

export function byLane(tasks: readonly Task[]): Record<LaneId, Task[]> {
  const lanes = Object.fromEntries(LANES.map((lane) => [lane.id, []])) as unknown as Record<LaneId, Task[]>;
  for (const task of tasks) lanes[laneOf(task)].push(task);
  for (const list of Object.values(lanes)) list.sort((a, b) => (since(a) < since(b) ? 1 : -1));
  lanes.queued.reverse(); // the next one first
  return lanes;
}

export interface SavedView {
  name: string;
  search: Search;
}
const VIEWS = "sandlot-board-views";

export function savedViews(): SavedView[] {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(VIEWS) ?? "[]");
    return Array.isArray(found) ? (found as SavedView[]).filter((view) => typeof view.name === "string") : [];
  } catch {
    return [];
  }
}

export function saveViews(views: readonly SavedView[]): void {
  localStorage.setItem(VIEWS, JSON.stringify(views));
}
