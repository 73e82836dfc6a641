// Everything that can be done to a task, as menu items; the same list for one card and for a selection.
import { Menu } from "@mantine/core";
import { Archive, Check, Copy, ExternalLink, GitFork, Pause, Play, RotateCcw, Square, Trash2, type LucideIcon } from "lucide-react";
import { useGo } from "../app/navigation";
import { mayWrite, useMe } from "../app/session";
import type { Task } from "../api/client";
import { confirm } from "../ui/confirm";
import { plural } from "../ui/format";
import { useIsOld } from "../live/provider";
import { failed, useActs, useDelete, useFork } from "./acts";
import { ACT_NAMES, actFor, actsOf, isEnded, LANES, laneOf, type Act, type LaneId } from "./lanes";

const ICONS: Record<Act, LucideIcon> = { start: Play, retry: RotateCcw, shelve: Archive, done: Check, stop: Square, pause: Pause };

function named(tasks: readonly Task[]): string {
  return tasks.length === 1 ? `“${tasks[0]!.title}”` : plural(tasks.length, "task");
}

const refuse = () => failed("Nothing was changed", new Error("What you see is out of date. Wait until the page has reconnected."));

/** Acts with the questions that some of them need. */
export function useAsked() {
  const act = useActs();
  const remove = useDelete();
  const isOld = useIsOld();
  async function run(tasks: readonly Task[], what: Act): Promise<void> {
    if (isOld) return refuse();
    if (what === "stop" && !(await confirm(`Stop ${named(tasks)}?`, "The agent ends and the task is cancelled. Its branch, changes and timeline stay.", "Stop"))) return;
    await act(tasks, what);
  }
  async function move(tasks: readonly Task[], to: LaneId): Promise<void> {
    if (isOld) return refuse();
    const groups = Map.groupBy(tasks, (task) => actFor(task, to));
    const again = groups.get("retry")?.filter((task) => laneOf(task) === "done" || laneOf(task) === "review") ?? [];
    if (again.length && !(await confirm(`Run ${named(again)} again?`, "The agent takes it up where it stopped, and may spend more.", "Run again", false))) return;
    await Promise.all([...groups].map(([what, list]) => (what ? act(list, what) : undefined)));
  }
  async function forget(tasks: readonly Task[]): Promise<boolean> {
    if (!(await confirm(`Delete ${named(tasks)}?`, "Its sandbox, timeline and artifacts are lost. Branches and pull requests stay.", "Delete"))) return false;
    await remove(tasks);
    return true;
  }
  return { run, move, forget };
}

export function TaskMenuItems({ task, onDeleted, isPage = false }: { task: Task; onDeleted?: () => void; isPage?: boolean }) {
  const go = useGo();
  const me = useMe();
  const { run, move, forget } = useAsked();
  const fork = useFork();
  const isOld = useIsOld();
  const lanes = LANES.filter((lane) => actFor(task, lane.id) !== null && lane.id !== "working");
  return (
    <>
      {!isPage && <Menu.Item leftSection={<ExternalLink size={14} />} onClick={() => go(`/tasks/${task.id}`)}>Open</Menu.Item>}
      <Menu.Item leftSection={<Copy size={14} />} onClick={() => void navigator.clipboard.writeText(`${location.origin}/console/tasks/${task.id}`)}>Copy link</Menu.Item>
      {mayWrite(me) && (
        <>
          <Menu.Divider />
          {actsOf(task).map((what) => {
            const Icon = ICONS[what];
            return <Menu.Item key={what} disabled={isOld} leftSection={<Icon size={14} />} onClick={() => void run([task], what)}>{ACT_NAMES[what]}</Menu.Item>;
          })}
          {task.sandbox_id && <Menu.Item disabled={isOld} leftSection={<GitFork size={14} />} onClick={() => void fork(task)}>Fork its sandbox</Menu.Item>}
          {lanes.length > 0 && <Menu.Label>Move to</Menu.Label>}
          {lanes.map((lane) => <Menu.Item key={lane.id} disabled={isOld} onClick={() => void move([task], lane.id)}>{lane.title}</Menu.Item>)}
          {(isEnded(task) || task.state === "todo") && (
            <>
              <Menu.Divider />
              <Menu.Item color="red" disabled={isOld} leftSection={<Trash2 size={14} />} onClick={() => void forget([task]).then((gone) => gone && onDeleted?.())}>Delete…</Menu.Item>
            </>
          )}
        </>
      )}
    </>
  );
}
