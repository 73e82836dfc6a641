// The board by keyboard: one card is the current one; arrows go from card to card, and it can be moved, opened, selected.
import { useCallback, useState } from "react";
import { useKeys } from "../../app/keys";
import type { Task } from "../../api/client";
import { actFor, LANES, laneOf, type LaneId } from "../../tasks/lanes";
import type { useSelection } from "./use-selection";

interface BoardKeys {
  lanes: Record<LaneId, Task[]>;
  byId: ReadonlyMap<string, Task>;
  selection: ReturnType<typeof useSelection>;
  open: (task: Task) => void;
  move: (tasks: readonly Task[], to: LaneId) => void;
  ask: (tasks: readonly Task[]) => void;
}

export function useBoardKeys({ lanes, byId, selection, open, move, ask }: BoardKeys) {
  const [id, setId] = useState<string | null>(null);
  const set = useCallback((task: Task) => setId(task.id), []);
  const focus = useCallback((name: string) => {
    setId(name);
    // The card may have to be scrolled into sight and drawn first.
    let tries = 0;
    const look = () => {
      const card = document.querySelector<HTMLElement>(`[data-card="${name}"]`);
      if (card) card.focus();
      else if (tries++ < 20) requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  }, []);
  const task = id ? byId.get(id) : undefined;
  const chosen = () => (task && selection.ids.has(task.id) ? selection.tasks : task ? [task] : selection.tasks);
  function step(dx: number, dy: number) {
    const filled = LANES.filter((lane) => lanes[lane.id].length);
    if (!task) return filled[0] && focus(lanes[filled[0].id][0]!.id);
    const column = filled.findIndex((lane) => lane.id === laneOf(task));
    const row = lanes[laneOf(task)].findIndex((each) => each.id === task.id);
    const list = lanes[filled[Math.min(Math.max(column + dx, 0), filled.length - 1)]!.id];
    focus(list[Math.min(Math.max(row + dy, 0), list.length - 1)]!.id);
  }
  function push(direction: 1 | -1) {
    if (!task) return;
    const places = direction === 1 ? LANES : LANES.toReversed();
    const from = places.findIndex((lane) => lane.id === laneOf(task));
    const to = places.slice(from + 1).find((lane) => actFor(task, lane.id) !== null);
    if (to) {
      move(chosen(), to.id);
      setTimeout(() => focus(task.id), 120);
    }
  }
  const group = "Board";
  const go = (keys: string, dx: number, dy: number, label: string, hidden = false) => ({ keys, label, group, hidden, run: () => void step(dx, dy) });
  useKeys([
    go("arrowdown", 0, 1, "Next card"), go("arrowup", 0, -1, "Previous card"), go("arrowright", 1, 0, "Next lane"), go("arrowleft", -1, 0, "Previous lane"),
    go("j", 0, 1, "", true), go("k", 0, -1, "", true), go("l", 1, 0, "", true), go("h", -1, 0, "", true),
    { keys: "shift+arrowright", label: "Move the card to the next lane", group, run: () => push(1) },
    { keys: "shift+arrowleft", label: "Move the card to the lane before", group, run: () => push(-1) },
    { keys: "enter", label: "Open the card", group, run: (event) => task && (event.target as HTMLElement).dataset["card"] && open(task) },
    { keys: "x", label: "Select the card", group, run: () => task && selection.toggle(task, false) },
    { keys: "m", label: "Move to…", group, run: () => chosen().length && ask(chosen()) },
  ]);
  return { id, set, focus };
}
