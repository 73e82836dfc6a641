// What can be done to all selected cards at once.
import { Button, CloseButton } from "@mantine/core";
import { Keycaps } from "../../app/keys";
import type { Task } from "../../api/client";
import { useIsOld } from "../../live/provider";
import { ACT_NAMES, actsOf, isEnded, type Act } from "../../tasks/lanes";
import { useAsked } from "../../tasks/menu";
import { plural } from "../../ui/format";
import classes from "./board.module.css";

export function BulkBar({ tasks, onMove, onDone }: { tasks: readonly Task[]; onMove: () => void; onDone: () => void }) {
  const { run, forget } = useAsked();
  const isOld = useIsOld();
  if (!tasks.length) return null;
  const acts = [...new Set(tasks.flatMap(actsOf))] as Act[];
  const gone = tasks.filter((task) => isEnded(task) || task.state === "todo");
  return (
    <div className={classes.bulk} role="toolbar" aria-label="Selected tasks">
      <span>{plural(tasks.length, "task")} selected</span>
      <Button variant="default" size="compact-sm" disabled={isOld} onClick={onMove} rightSection={<Keycaps keys="m" />}>Move to…</Button>
      {acts.map((act) => {
        const list = tasks.filter((task) => actsOf(task).includes(act));
        return <Button key={act} variant="default" size="compact-sm" disabled={isOld} onClick={() => void run(list, act).then(onDone)}>{ACT_NAMES[act]}{list.length < tasks.length ? ` (${list.length})` : ""}</Button>;
      })}
      {gone.length > 0 && <Button variant="subtle" color="red" size="compact-sm" disabled={isOld} onClick={() => void forget(gone).then((done) => done && onDone())}>Delete{gone.length < tasks.length ? ` (${gone.length})` : ""}</Button>}
      <CloseButton aria-label="Clear the selection" onClick={onDone} />
    </div>
  );
}
