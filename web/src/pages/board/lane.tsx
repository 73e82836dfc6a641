// One lane: its cards, of which only those in sight are drawn, and the place where cards are dropped.
import { dropTargetForElements } from "@atlaskit/pragmatic-drag-and-drop/element/adapter";
import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useEffect, useRef, useState } from "react";
import type { Task } from "../../api/client";
import { actFor, type Lane } from "../../tasks/lanes";
import { Card } from "./card";
import classes from "./lane.module.css";

export interface LaneProps {
  lane: Lane;
  tasks: readonly Task[];
  byId: ReadonlyMap<string, Task>;
  openId: string | undefined;
  selected: ReadonlySet<string>;
  current: string | null;
  canMove: boolean;
  dragging: readonly Task[]; // what is being dragged, on the whole board
  onOpen: (task: Task) => void;
  onSelect: (task: Task, range: boolean) => void;
  onFocus: (task: Task) => void;
}

export const LaneColumn = memo(function LaneColumn({ lane, tasks, byId, openId, selected, current, canMove, dragging, onOpen, onSelect, onFocus }: LaneProps) {
  const box = useRef<HTMLDivElement>(null);
  const section = useRef<HTMLElement>(null);
  const [over, setOver] = useState(false);
  const rows = useVirtualizer({
    count: tasks.length,
    getScrollElement: () => box.current,
    estimateSize: () => 118,
    overscan: 6,
    gap: 6,
    getItemKey: (n) => tasks[n]!.id,
  });
  useEffect(() => {
    if (!section.current) return;
    return dropTargetForElements({
      element: section.current,
      getData: () => ({ lane: lane.id }),
      onDragEnter: () => setOver(true),
      onDragLeave: () => setOver(false),
      onDrop: () => setOver(false),
    });
  }, [lane.id]);
  const at = current ? tasks.findIndex((task) => task.id === current) : -1;
  useEffect(() => {
    if (at >= 0) rows.scrollToIndex(at, { align: "auto" });
  }, [at, rows]);
  const takes = dragging.length > 0 && dragging.some((task) => actFor(task, lane.id) !== null);
  const refuses = dragging.length > 0 && !takes && !dragging.some((task) => lane.states.includes(task.state));
  return (
    <section ref={section} className={classes.lane} aria-label={`${lane.title}, ${tasks.length}`} data-lane={lane.id} data-over={(over && takes) || undefined} data-takes={takes || undefined} data-refuses={refuses || undefined}>
      <h2 className={classes.head}>
        <span>{lane.title}</span>
        <span className={`${classes.count} num`}>{tasks.length}</span>
      </h2>
      <div ref={box} className={classes.scroll}>
        {tasks.length === 0 && <p className={classes.empty}>{lane.empty}</p>}
        <div role="list" style={{ height: rows.getTotalSize(), position: "relative" }}>
          {rows.getVirtualItems().map((item) => {
            const task = tasks[item.index]!;
            return (
              <div key={item.key} role="listitem" ref={rows.measureElement} data-index={item.index} className={classes.place} style={{ transform: `translateY(${item.start}px)` }}>
                <Card task={task} byId={byId} isOpen={openId === task.id} isSelected={selected.has(task.id)} isCurrent={current === task.id} canMove={canMove} onOpen={onOpen} onSelect={onSelect} onFocus={onFocus} />
              </div>
            );
          })}
        </div>
      </div>
    </section>
  );
});
