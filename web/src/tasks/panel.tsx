// A task beside the board: what it is about, what happens, and a word to its agent, without leaving the board.
import { ActionIcon, Tooltip } from "@mantine/core";
import { Maximize2, X } from "lucide-react";
import { useEffect, useRef } from "react";
import { useKeys } from "../app/keys";
import { useGo } from "../app/navigation";
import type { Task } from "../api/client";
import { useTimeline } from "../timeline/store";
import { TimelineView } from "../timeline/view";
import { Composer, useSay } from "./composer";
import { Facts, StateLine } from "./facts";
import { HeaderActs } from "./header-acts";
import { useTask, useTaskUpdates } from "./use-task";
import classes from "./panel.module.css";

export function TaskPanel({ task: brief, onClose }: { task: Task; onClose: () => void }) {
  const go = useGo();
  const task = useTask(brief.id).data ?? brief;
  const timeline = useTimeline(brief.id, useTaskUpdates(brief.id));
  const say = useSay(task);
  const box = useRef<HTMLElement>(null);
  useEffect(() => {
    box.current?.focus({ preventScroll: true });
  }, []);
  useKeys([{ keys: "o", label: "Open the whole page of the card", group: "Board", run: () => go(`/tasks/${task.id}`) }]);
  return (
    <aside ref={box} tabIndex={-1} className={classes.panel} aria-label={task.title}>
      <div className={classes.head}>
        <StateLine task={task} />
        <span className="grow" />
        <Tooltip label="Open the whole page"><ActionIcon aria-label="Open the whole page" onClick={() => go(`/tasks/${task.id}`)}><Maximize2 size={14} /></ActionIcon></Tooltip>
        <ActionIcon aria-label="Close" onClick={onClose}><X size={16} /></ActionIcon>
      </div>
      <div className={classes.about}>
        <h2>{task.title}</h2>
        <Facts task={task} />
        <HeaderActs task={task} onDeleted={onClose} />
      </div>
      <div className={classes.timeline}><TimelineView store={timeline} tools={false} onAnswer={(text) => void say(text)} /></div>
      <Composer task={task} />
    </aside>
  );
}
