// The inbox: everything that waits for a person, answered in place; `n` goes to the next.
import { Button } from "@mantine/core";
import { useMediaQuery } from "@mantine/hooks";
import { Inbox as InboxIcon } from "lucide-react";
import { useMemo, useRef } from "react";
import { useKeys } from "../../app/keys";
import { useGo, useSearchState } from "../../app/navigation";
import type { Task } from "../../api/client";
import { needsPerson, since } from "../../tasks/lanes";
import { Changes, Checks, PullRequest } from "../../tasks/parts";
import { StateIcon } from "../../tasks/state-icon";
import { useTasks } from "../../tasks/store";
import { PageFrame, PageHead } from "../../ui/page";
import { Empty, Shown } from "../../ui/states";
import { Ago } from "../../ui/time";
import { Answer } from "./answer";
import classes from "./inbox.module.css";

const RANK: Partial<Record<Task["state"], number>> = { needs_you: 0, failed: 1, review: 2 };

export default function Inbox() {
  const query = useTasks();
  return <Shown query={query}>{(table) => <Loaded tasks={[...table.byId.values()]} />}</Shown>;
}

function Loaded({ tasks }: { tasks: readonly Task[] }) {
  const [search, change] = useSearchState();
  const go = useGo();
  const isPhone = useMediaQuery("(max-width: 900px)");
  const list = useMemo(() => tasks.filter(needsPerson).sort((a, b) => RANK[a.state]! - RANK[b.state]! || (since(a) < since(b) ? -1 : 1)), [tasks]);
  const box = useRef<HTMLDivElement>(null);
  const found = list.find((task) => task.id === search["task"]);
  const shown = found ?? (isPhone ? undefined : list[0]);
  function step(by: number) {
    if (!list.length) return;
    const at = shown ? list.indexOf(shown) : -1;
    const next = list[(at + by + list.length) % list.length]!;
    change({ task: next.id });
    requestAnimationFrame(() => box.current?.querySelector<HTMLElement>(`[data-task="${next.id}"]`)?.focus());
  }
  useKeys([
    { keys: "n", label: "Next that waits", group: "Inbox", run: () => step(1) },
    { keys: "p", label: "The one before", group: "Inbox", run: () => step(-1) },
    { keys: "arrowdown", label: "Next that waits", group: "Inbox", run: () => step(1), hidden: true },
    { keys: "arrowup", label: "The one before", group: "Inbox", run: () => step(-1), hidden: true },
    { keys: "o", label: "Open the task", group: "Inbox", run: () => shown && go(`/tasks/${shown.id}`) },
  ]);
  if (!list.length) {
    return (
      <PageFrame head={<PageHead title="Inbox" />}>
        <Empty icon={InboxIcon} title="Nothing waits for you" action={<Button variant="default" onClick={() => go("/board")}>Open the board</Button>}>Questions of agents, failed starts and work to review come here.</Empty>
      </PageFrame>
    );
  }
  return (
    <div className={classes.page}>
      {(!isPhone || !found) && (
        <div className={classes.list}>
          <PageHead title="Inbox" note={<span className="num">{list.length}</span>} />
          <div ref={box} className={classes.rows}>
            {list.map((task) => (
              <button key={task.id} type="button" data-task={task.id} className={classes.row} aria-current={shown?.id === task.id || undefined} onClick={() => change({ task: task.id })}>
                <StateIcon state={task.state} labelled />
                <span className={classes.words}>
                  <b className="cut">{task.title}</b>
                  <span className={`${classes.why} cut`}>{task.reason ?? (task.state === "review" ? "Ready for review" : task.last_action)}</span>
                  <span className={classes.facts}><span className="cut">{task.repository}</span><Changes task={task} /><Checks task={task} /><PullRequest task={task} /></span>
                </span>
                <span className="faint"><Ago at={since(task)} /></span>
              </button>
            ))}
          </div>
        </div>
      )}
      {shown && <Answer key={shown.id} task={shown} onBack={isPhone ? () => change({ task: undefined }) : undefined} onNext={() => step(1)} hasNext={list.length > 1} />}
    </div>
  );
}
