// The board's lanes, and what putting a task into one of them means.
import type { Task, TaskState } from "../api/client";

export type LaneId = "todo" | "queued" | "working" | "needs_you" | "review" | "done";
export interface Lane {
  id: LaneId;
  title: string;
  states: readonly TaskState[];
  empty: string;
}
export const LANES: readonly Lane[] = [
  { id: "todo", title: "To do", states: ["todo"], empty: "Nothing is planned" },
  { id: "queued", title: "Queued", states: ["queued"], empty: "Nobody waits" },
  { id: "working", title: "Working", states: ["working"], empty: "No agent works" },
  { id: "needs_you", title: "Needs you", states: ["needs_you", "failed"], empty: "Nothing waits for you" },
  { id: "review", title: "Review", states: ["review"], empty: "Nothing to review" },
  { id: "done", title: "Done", states: ["done", "cancelled"], empty: "Nothing is done yet" },
];
export const STATE_NAMES: Record<TaskState, string> = {
  todo: "To do", queued: "Queued", working: "Working", needs_you: "Needs you", review: "Review", done: "Done", failed: "Failed", cancelled: "Cancelled",
};
const OF = new Map(LANES.flatMap((lane) => lane.states.map((state) => [state, lane.id] as const)));

export function laneOf(task: Task): LaneId {
  return OF.get(task.state) ?? "todo";
}

/** What has to be done so that a task gets into a lane; null if only its run can bring it there. */
export type Act = "start" | "retry" | "shelve" | "done" | "stop" | "pause";
export function actFor(task: Task, to: LaneId): Act | null {
  const state = task.state;
  if (laneOf(task) === to) return null;
  if (to === "queued" || to === "working") {
    if (state === "todo") return "start";
    return ["needs_you", "review", "done", "failed", "cancelled"].includes(state) ? "retry" : null;
  }
  if (to === "todo") return ["queued", "failed", "cancelled"].includes(state) ? "shelve" : null;
  if (to === "needs_you") return state === "working" ? "pause" : null;
  if (to === "done") return state === "needs_you" || state === "review" ? "done" : null;
  return null;
}
export const ACT_NAMES: Record<Act, string> = {
  start: "Start", retry: "Take up again", shelve: "Back to To do", done: "Mark as done", stop: "Stop and cancel", pause: "Pause",
};

/** All acts that a task's state allows. */
export function actsOf(task: Task): Act[] {
  switch (task.state) {
    case "todo": return ["start", "stop"];
    case "queued": return ["shelve", "stop"];
    case "working": return ["pause", "stop"];
    case "needs_you": return ["retry", "done", "stop"];
    case "review": return ["retry", "done", "stop"];
    case "done": return ["retry"];
    default: return ["retry", "shelve"];
  }
}

export function needsPerson(task: Task): boolean {
  return task.state === "needs_you" || task.state === "review" || task.state === "failed";
}

export function isEnded(task: Task): boolean {
  return task.state === "done" || task.state === "failed" || task.state === "cancelled";
}

/** When it came into the state that it is in, as far as the server tells. */
export function since(task: Task): string {
  switch (task.state) {
    case "todo": return task.created_at;
    case "queued": return task.queued_at ?? task.created_at;
    case "working": return task.started_at ?? task.queued_at ?? task.created_at;
    default: return task.ended_at ?? task.started_at ?? task.created_at;
  }
}
