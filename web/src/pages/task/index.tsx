// The page of one task: its head, its timeline, and beside it what the agent changed, runs and left behind.
import { Tabs } from "@mantine/core";
import { useMediaQuery } from "@mantine/hooks";
import { Link } from "@tanstack/react-router";
import { ChevronLeft } from "lucide-react";
import { lazy, Suspense, useRef, type ComponentType } from "react";
import { useKeys } from "../../app/keys";
import { useGo, useParam, useSearchState } from "../../app/navigation";
import type { Task } from "../../api/client";
import { Composer, useSay } from "../../tasks/composer";
import { Facts, StateLine } from "../../tasks/facts";
import { HeaderActs } from "../../tasks/header-acts";
import { useTask, useTaskUpdates } from "../../tasks/use-task";
import { useTimeline } from "../../timeline/store";
import { TimelineView } from "../../timeline/view";
import { Loading, Shown } from "../../ui/states";
import classes from "./task.module.css";

export interface TabProps {
  task: Task;
}
interface TabInfo {
  id: string;
  title: string;
  view: ComponentType<TabProps>;
  key: string;
}
const TABS: readonly TabInfo[] = [
  { id: "changes", title: "Changes", key: "1", view: lazy(() => import("./changes")) },
  { id: "checks", title: "Checks", key: "2", view: lazy(() => import("./checks")) },
  { id: "terminal", title: "Terminal", key: "3", view: lazy(() => import("./terminal")) },
  { id: "files", title: "Files", key: "4", view: lazy(() => import("./files")) },
  { id: "preview", title: "Preview", key: "5", view: lazy(() => import("./preview")) },
  { id: "screen", title: "Screen", key: "6", view: lazy(() => import("./screen")) },
  { id: "network", title: "Network", key: "7", view: lazy(() => import("./network")) },
  { id: "numbers", title: "Numbers", key: "8", view: lazy(() => import("./numbers")) },
  { id: "about", title: "About", key: "9", view: lazy(() => import("./about")) },
];

export default function TaskPage() {
  const id = useParam("id");
  const query = useTask(id);
  return <Shown query={query}>{(task) => <Loaded key={id} task={task} />}</Shown>;
}

function Loaded({ task }: { task: Task }) {
  const [search, change] = useSearchState();
  const go = useGo();
  const isPhone = useMediaQuery("(max-width: 900px)");
  const timeline = useTimeline(task.id, useTaskUpdates(task.id));
  const say = useSay(task);
  const field = useRef<HTMLTextAreaElement>(null);
  const chosen = search["tab"] ?? (isPhone ? "timeline" : "changes");
  const tab = !isPhone && chosen === "timeline" ? "changes" : chosen;
  useKeys([
    { keys: "r", label: "Write to the agent", group: "Task", run: () => field.current?.focus() },
    ...TABS.map((each) => ({ keys: each.key, label: each.title, group: "Task", run: () => change({ tab: each.id }) })),
  ]);
  const story = (
    <section className={classes.story} aria-label="Timeline and messages">
      <div className={classes.timeline}><TimelineView store={timeline} onAnswer={(text) => void say(text)} /></div>
      <Composer task={task} field={field} />
    </section>
  );
  return (
    <div className={classes.page}>
      <header className={classes.head}>
        <div className={classes.line}>
          <Link to={"/board" as string} className={classes.back} aria-label="Back to the board"><ChevronLeft size={16} aria-hidden /></Link>
          <h1 className="cut">{task.title}</h1>
          <HeaderActs task={task} isPage onDeleted={() => go("/board")} />
        </div>
        <div className={classes.sub}>
          <StateLine task={task} />
          <Facts task={task} />
        </div>
      </header>
      <div className={classes.panes}>
        {!isPhone && story}
        <Tabs value={tab} onChange={(value) => change({ tab: value ?? undefined })} className={classes.tabs} keepMounted={false}>
          <Tabs.List className={classes.list} aria-label="Parts of the task">
            {isPhone && <Tabs.Tab value="timeline">Timeline</Tabs.Tab>}
            {TABS.map((each) => <Tabs.Tab key={each.id} value={each.id}>{each.title}{badge(each.id, task)}</Tabs.Tab>)}
          </Tabs.List>
          {isPhone && <Tabs.Panel value="timeline" className={classes.panel}>{story}</Tabs.Panel>}
          {TABS.map((each) => (
            <Tabs.Panel key={each.id} value={each.id} className={classes.panel}>
              <Suspense fallback={<Loading />}><each.view task={task} /></Suspense>
            </Tabs.Panel>
          ))}
        </Tabs>
      </div>
    </div>
  );
}

function badge(tab: string, task: Task) {
  const bad = task.checks.filter((check) => check.exit_code !== null && check.exit_code !== 0).length;
  if (tab === "changes" && task.changes.files) return <span className={`${classes.badge} num`}>{task.changes.files}</span>;
  if (tab === "checks" && task.checks.length) return <span className={`${classes.badge} num`} data-bad={bad > 0 || undefined}>{bad ? `${bad} failed` : task.checks.length}</span>;
  return null;
}
