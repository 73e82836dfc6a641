// The board as a list: one line per task.
import { Checkbox } from "@mantine/core";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useRef } from "react";
import type { Task } from "../../api/client";
import { LANES, since, STATE_NAMES } from "../../tasks/lanes";
import { Blocked, Changes, Checks, Cost, PullRequest } from "../../tasks/parts";
import { StateIcon } from "../../tasks/state-icon";
import { Ago } from "../../ui/time";
import { byLane } from "./filters";
import classes from "./list.module.css";

interface ListProps {
  tasks: readonly Task[];
  byId: ReadonlyMap<string, Task>;
  openId: string | undefined;
  selected: ReadonlySet<string>;
  onOpen: (task: Task) => void;
  onSelect: (task: Task, range: boolean) => void;
}

export function TaskList({ tasks, byId, openId, selected, onOpen, onSelect }: ListProps) {
  const lanes = byLane(tasks);
  const ordered = ["needs_you", "review", "working", "queued", "todo", "done"].flatMap((id) => lanes[LANES.find((lane) => lane.id === id)!.id]);
  const box = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({ count: ordered.length, getScrollElement: () => box.current, estimateSize: () => 36, overscan: 12 });
  return (
    <div ref={box} className={classes.scroll}>
      <table className={classes.table} aria-rowcount={ordered.length}>
        <thead>
          <tr><th><span className="hidden-text">Selected</span></th><th>State</th><th>Task</th><th>Repository</th><th>Agent</th><th>Changes</th><th>Checks</th><th>Pull request</th><th>Cost</th><th>Since</th></tr>
        </thead>
        <tbody>
          <tr style={{ height: rows.getVirtualItems()[0]?.start ?? 0 }} aria-hidden />
          {rows.getVirtualItems().map((item) => {
            const task = ordered[item.index]!;
            return (
              <tr key={task.id} data-open={openId === task.id || undefined} data-selected={selected.has(task.id) || undefined} onClick={() => onOpen(task)}>
                <td onClick={(event) => event.stopPropagation()}><Checkbox aria-label={`Select ${task.title}`} checked={selected.has(task.id)} onChange={(event) => onSelect(task, (event.nativeEvent as MouseEvent).shiftKey)} /></td>
                <td><span className="row"><StateIcon state={task.state} /><span>{STATE_NAMES[task.state]}</span></span></td>
                <td className={classes.title}><button type="button" onClick={() => onOpen(task)}>{task.title}</button> <span className="faint">{task.last_action ?? task.reason}</span></td>
                <td className="dim">{task.repository}</td>
                <td className="dim">{task.agent}</td>
                <td><Changes task={task} /></td>
                <td><span className="row"><Checks task={task} /><Blocked task={task} byId={byId} /></span></td>
                <td><PullRequest task={task} /></td>
                <td><Cost task={task} /></td>
                <td className="faint"><Ago at={since(task)} /></td>
              </tr>
            );
          })}
          <tr style={{ height: Math.max(0, rows.getTotalSize() - (rows.getVirtualItems().at(-1)?.end ?? 0)) }} aria-hidden />
        </tbody>
      </table>
    </div>
  );
}
