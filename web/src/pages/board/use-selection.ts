// Which cards are selected; a range goes from the card that was chosen last.
import { useCallback, useMemo, useRef, useState } from "react";
import type { Task } from "../../api/client";

export function useSelection(order: readonly Task[], byId: ReadonlyMap<string, Task>) {
  const [ids, setIds] = useState<ReadonlySet<string>>(new Set());
  const last = useRef<string | null>(null);
  const listed = useRef(order);
  listed.current = order;
  const toggle = useCallback((task: Task, range: boolean) => {
    setIds((old) => {
      const next = new Set(old);
      const names = listed.current.map((each) => each.id);
      const [from, to] = [names.indexOf(last.current ?? ""), names.indexOf(task.id)];
      if (range && from >= 0 && to >= 0) names.slice(Math.min(from, to), Math.max(from, to) + 1).forEach((id) => next.add(id));
      else if (!next.delete(task.id)) next.add(task.id);
      return next;
    });
    last.current = task.id;
  }, []);
  const clear = useCallback(() => setIds(new Set()), []);
  const tasks = useMemo(() => [...ids].flatMap((id) => byId.get(id) ?? []), [ids, byId]);
  return { ids, tasks, toggle, clear };
}
