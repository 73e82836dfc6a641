// The board: tasks in lanes by what they need, moved by mouse, keys and menu; a card opens beside the board.
import { monitorForElements } from "@atlaskit/pragmatic-drag-and-drop/element/adapter";
import { Button } from "@mantine/core";
import { useMediaQuery } from "@mantine/hooks";
import { SquareKanban } from "lucide-react";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { useKeys } from "../../app/keys";
import { useGo, useSearchState } from "../../app/navigation";
import { mayWrite, useMe } from "../../app/session";
import type { Task } from "../../api/client";
import { useIsOld } from "../../live/provider";
import { LANES, type LaneId } from "../../tasks/lanes";
import { useAsked } from "../../tasks/menu";
import { useTasks, type TaskTable } from "../../tasks/store";
import { Empty, Shown } from "../../ui/states";
import { BoardBar } from "./bar";
import { BulkBar } from "./bulk";
import { byLane, isFiltered, useFiltered } from "./filters";
import { LaneColumn } from "./lane";
import { TaskList } from "./list";
import { MoveDialog } from "./move";
import { TaskPanel } from "./panel";
import { useBoardKeys } from "./use-board-keys";
import { useSelection } from "./use-selection";
import classes from "./board.module.css";

export default function Board() {
  const query = useTasks();
  return <Shown query={query}>{(table) => <Loaded table={table} />}</Shown>;
}

function Loaded({ table }: { table: TaskTable }) {
  const [search, change] = useSearchState();
  const go = useGo();
  const me = useMe();
  const canMove = !useIsOld() && mayWrite(me);
  const all = useMemo(() => [...table.byId.values()], [table]);
  const tasks = useFiltered(all);
  const lanes = useMemo(() => byLane(tasks), [tasks]);
  const order = useMemo(() => LANES.flatMap((lane) => lanes[lane.id]), [lanes]);
  const selection = useSelection(order, table.byId);
  const { move } = useAsked();
  const [dragging, setDragging] = useState<readonly Task[]>([]);
  const [moving, setMoving] = useState<readonly Task[]>([]);
  const field = useRef<HTMLInputElement>(null);
  const isPhone = useMediaQuery("(max-width: 760px)");
  const openId = search["task"];
  const open = useCallback((task: Task) => change({ task: task.id }), [change]);
  const current = useBoardKeys({ lanes, byId: table.byId, selection, open, move: (list, to) => void move(list, to), ask: setMoving });
  useKeys([
    { keys: "f", label: "Filter", group: "Board", run: () => field.current?.focus() },
    { keys: "v", label: "Lanes or list", group: "Board", run: () => change({ view: search["view"] === "list" ? undefined : "list" }) },
    { keys: "escape", label: "Close the card, clear the selection", group: "Board", run: () => (selection.ids.size ? selection.clear() : change({ task: undefined })) },
  ]);
  useDrops(table, selection.ids, setDragging, (list, to) => void move(list, to));
  if (!all.length) {
    return (
      <div className={classes.board}>
        <BoardBar tasks={all} shown={0} field={field} />
        <Empty
          icon={SquareKanban}
          title="No tasks yet"
          action={mayWrite(me) && <Button onClick={() => go("/new")}>New task</Button>}
          lines={'./sandlot repo create demo\n./sandlot task create demo "Add a README"'}
        >
          A task is work on a repository: an agent does it in a sandbox of its own, and it comes back as a pull request.
        </Empty>
      </div>
    );
  }
  const shownLane = (search["lane"] as LaneId | undefined) ?? "needs_you";
  const columns = LANES.map((lane) => (lanes[lane.id].length ? "minmax(194px, 1fr)" : "minmax(112px, 0.55fr)")).join(" ");
  const opened = openId ? table.byId.get(openId) : undefined;
  return (
    <div className={classes.board}>
      <BoardBar tasks={all} shown={tasks.length} field={field} />
      <p id="board-keys" className="hidden-text">Arrows go from card to card, Enter opens, M moves, X selects, Shift with left or right arrow moves the card to the next lane.</p>
      {!tasks.length && isFiltered(search) && <p className={classes.none}>No task matches these filters.</p>}
      {isPhone && search["view"] !== "list" && (
        <div className={classes.tabs} role="tablist" aria-label="Lanes">
          {LANES.map((lane) => (
            <button key={lane.id} type="button" role="tab" aria-selected={lane.id === shownLane} onClick={() => change({ lane: lane.id })}>{lane.title} <span className="num">{lanes[lane.id].length}</span></button>
          ))}
        </div>
      )}
      <div className={classes.body}>
        {search["view"] === "list" ? (
          <TaskList tasks={tasks} byId={table.byId} openId={openId} selected={selection.ids} onOpen={open} onSelect={selection.toggle} />
        ) : (
          <div className={classes.lanes} style={isPhone ? undefined : { gridTemplateColumns: columns }}>
            {LANES.filter((lane) => !isPhone || lane.id === shownLane).map((lane) => (
              <LaneColumn
                key={lane.id}
                lane={lane}
                tasks={lanes[lane.id]}
                byId={table.byId}
                openId={openId}
                selected={selection.ids}
                current={current.id ?? order[0]?.id ?? null}
                canMove={canMove}
                dragging={dragging}
                onOpen={open}
                onSelect={selection.toggle}
                onFocus={current.set}
              />
            ))}
          </div>
        )}
        {opened && <TaskPanel key={opened.id} task={opened} onClose={() => (change({ task: undefined }), current.focus(opened.id))} />}
      </div>
      <BulkBar tasks={selection.tasks} onMove={() => setMoving(selection.tasks)} onDone={selection.clear} />
      <MoveDialog tasks={moving} onClose={() => setMoving([])} onMove={(to) => void move(moving, to)} />
    </div>
  );
}

/** Watches drags on the whole board: what is dragged, and where it is dropped. */
function useDrops(table: TaskTable, selected: ReadonlySet<string>, setDragging: (tasks: readonly Task[]) => void, move: (tasks: readonly Task[], to: LaneId) => void) {
  const newest = useRef({ table, selected, move });
  newest.current = { table, selected, move };
  useEffect(() => {
    const dragged = (id: string) => {
      const ids = newest.current.selected.has(id) ? [...newest.current.selected] : [id];
      return ids.flatMap((each) => newest.current.table.byId.get(each) ?? []);
    };
    return monitorForElements({
      onDragStart: ({ source }) => setDragging(dragged(source.data["task"] as string)),
      onDrop: ({ source, location }) => {
        setDragging([]);
        const to = location.current.dropTargets[0]?.data["lane"] as LaneId | undefined;
        if (to) newest.current.move(dragged(source.data["task"] as string), to);
      },
    });
  }, [setDragging]);
}
