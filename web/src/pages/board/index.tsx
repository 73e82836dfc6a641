import { LANES, laneOf } from "../../tasks/lanes";
import { StateIcon } from "../../tasks/state-icon";
import { useTasks } from "../../tasks/store";
import { PageFrame, PageHead } from "../../ui/page";
import { Shown } from "../../ui/states";

export default function Board() {
  const tasks = useTasks();
  return (
    <PageFrame head={<PageHead title="Board" />}>
      <Shown query={tasks}>
        {(table) => (
          <div style={{ display: "grid", gridTemplateColumns: `repeat(${LANES.length}, minmax(200px, 1fr))`, gap: 12, padding: 16 }}>
            {LANES.map((lane) => (
              <section key={lane.id} aria-label={lane.title}>
                <h2>{lane.title}</h2>
                {[...table.byId.values()].filter((task) => laneOf(task) === lane.id).map((task) => (
                  <div key={task.id} className="row"><StateIcon state={task.state} labelled /> {task.title}</div>
                ))}
              </section>
            ))}
          </div>
        )}
      </Shown>
    </PageFrame>
  );
}
