// "Move to…": what dragging does, for the keyboard.
import { Modal } from "@mantine/core";
import type { Task } from "../../api/client";
import { ACT_NAMES, actFor, LANES, type LaneId } from "../../tasks/lanes";
import { plural } from "../../ui/format";
import classes from "./board.module.css";

export function MoveDialog({ tasks, onClose, onMove }: { tasks: readonly Task[]; onClose: () => void; onMove: (to: LaneId) => void }) {
  const title = tasks.length === 1 ? `Move “${tasks[0]!.title}” to` : `Move ${plural(tasks.length, "task")} to`;
  return (
    <Modal opened={tasks.length > 0} onClose={onClose} title={title} size={360}>
      <div className={classes.choices}>
        {LANES.map((lane) => {
          const acts = new Set(tasks.map((task) => actFor(task, lane.id)).filter((act) => act !== null));
          return (
            <button key={lane.id} type="button" disabled={!acts.size} onClick={() => (onClose(), onMove(lane.id))}>
              <span>{lane.title}</span>
              <span className="faint">{[...acts].map((act) => ACT_NAMES[act]).join(", ")}</span>
            </button>
          );
        })}
      </div>
    </Modal>
  );
}
