// A card of the board.
import { draggable } from "@atlaskit/pragmatic-drag-and-drop/element/adapter";
import { ActionIcon, Menu } from "@mantine/core";
import { Ellipsis } from "lucide-react";
import { memo, useEffect, useRef, useState } from "react";
import type { Task } from "../../api/client";
import { since } from "../../tasks/lanes";
import { TaskMenuItems } from "../../tasks/menu";
import { Blocked, Changes, Checks, Cost, Isolation, PullRequest } from "../../tasks/parts";
import { StateIcon } from "../../tasks/state-icon";
import { Ago } from "../../ui/time";
import classes from "./card.module.css";

interface CardProps {
  task: Task;
  byId: ReadonlyMap<string, Task>;
  isOpen: boolean;
  isSelected: boolean;
  isCurrent: boolean; // the one that the keyboard is at
  canMove: boolean;
  onOpen: (task: Task) => void;
  onSelect: (task: Task, range: boolean) => void;
  onFocus: (task: Task) => void;
}

export const Card = memo(function Card({ task, byId, isOpen, isSelected, isCurrent, canMove, onOpen, onSelect, onFocus }: CardProps) {
  const box = useRef<HTMLElement>(null);
  const [dragged, setDragged] = useState(false);
  useEffect(() => {
    if (!canMove || !box.current) return;
    return draggable({
      element: box.current,
      getInitialData: () => ({ task: task.id }),
      onDragStart: () => setDragged(true),
      onDrop: () => setDragged(false),
    });
  }, [task.id, canMove]);
  const line = task.state === "needs_you" || task.state === "failed" || task.state === "todo" || task.state === "queued" ? (task.reason ?? task.last_action) : (task.last_action ?? task.reason);
  return (
    <article
      ref={box}
      className={classes.card}
      data-card={task.id}
      data-open={isOpen || undefined}
      data-selected={isSelected || undefined}
      data-dragged={dragged || undefined}
      data-state={task.state}
      tabIndex={isCurrent ? 0 : -1}
      aria-label={`${task.title}, ${task.repository}`}
      aria-describedby="board-keys"
      onFocus={(event) => event.target === event.currentTarget && onFocus(task)}
      onClick={(event) => (event.metaKey || event.ctrlKey || event.shiftKey ? onSelect(task, event.shiftKey) : onOpen(task))}
    >
      <div className={classes.top}>
        <StateIcon state={task.state} labelled />
        <span className={`${classes.repo} cut`}>{task.repository}</span>
        <span className={classes.age}><Ago at={since(task)} /></span>
        <Menu width={200}>
          <Menu.Target>
            <ActionIcon size={22} aria-label={`What to do with ${task.title}`} className={classes.more} tabIndex={-1} onClick={(event) => event.stopPropagation()}>
              <Ellipsis size={15} />
            </ActionIcon>
          </Menu.Target>
          <Menu.Dropdown onClick={(event) => event.stopPropagation()}><TaskMenuItems task={task} /></Menu.Dropdown>
        </Menu>
      </div>
      <h3 className={classes.title}>{task.title}</h3>
      {line && <p className={classes.line} title={line}>{line}</p>}
      {task.labels.length > 0 && <div className={classes.labels}>{task.labels.map((label) => <span key={label}>{label}</span>)}</div>}
      <div className={classes.facts}>
        <span className={classes.agent}>{task.agent}{task.attempt_count > 1 ? ` ×${task.attempt_count}` : ""}</span>
        <Blocked task={task} byId={byId} />
        <Changes task={task} />
        <Checks task={task} />
        <PullRequest task={task} />
        <Cost task={task} />
        <Isolation task={task} />
      </div>
    </article>
  );
});
