// A task's facts in one line: who, where, how long, how much, what came of it.
import { GitBranch } from "lucide-react";
import type { Task } from "../api/client";
import { CopyIcon } from "../ui/copy";
import { Ago, clock, span, useNow } from "../ui/time";
import { isEnded, since, STATE_NAMES } from "./lanes";
import { Changes, Checks, Cost, Isolation, PullRequest } from "./parts";
import { StateIcon } from "./state-icon";
import classes from "./facts.module.css";

export function Facts({ task }: { task: Task }) {
  return (
    <div className={classes.facts}>
      <span className="dim">{task.repository}</span>
      <span className={classes.branch}><GitBranch size={12} aria-hidden /><code>{task.branch}</code><CopyIcon text={task.branch} label="Copy the branch" /></span>
      <span className="dim">{task.agent}{task.model ? ` · ${task.model}` : ""}</span>
      <Clock task={task} />
      <Changes task={task} />
      <Checks task={task} />
      <PullRequest task={task} link />
      <Cost task={task} />
      <Isolation task={task} />
    </div>
  );
}

export function StateLine({ task }: { task: Task }) {
  return (
    <div className={classes.state} data-state={task.state}>
      <StateIcon state={task.state} />
      <b>{STATE_NAMES[task.state]}</b>
      <span className="faint"><Ago at={since(task)} /></span>
      {task.reason && <span className={classes.reason}>{task.reason}</span>}
    </div>
  );
}

function Clock({ task }: { task: Task }) {
  const now = useNow(1000);
  if (!task.started_at) return null;
  const from = new Date(task.started_at).getTime();
  if (isEnded(task) && task.ended_at) return <span className="dim num" title="From its start to its end">{span(new Date(task.ended_at).getTime() - from)}</span>;
  if (task.state !== "working") return null;
  return <span className="dim num" title="Since it was started, and how long it may take">{clock(now - from)} / {span(task.limits.seconds * 1000)}</span>;
}
