// Small facts of a task, drawn the same way on cards, in lists and in headers.
import { Tooltip } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { Check, CircleDashed, GitMerge, GitPullRequest, GitPullRequestClosed, Lock, ShieldCheck, X } from "lucide-react";
import type { ReactNode } from "react";
import type { Task } from "../api/client";
import { compact, dollars, plural } from "../ui/format";
import classes from "./parts.module.css";

export function Changes({ task }: { task: Pick<Task, "changes"> }) {
  const { files, added, removed } = task.changes;
  if (!files && !added && !removed) return null;
  return (
    <Tooltip label={plural(files, "file")}>
      <span className={`${classes.changes} num`}>
        <span className={classes.added}>+{compact(added)}</span> <span className={classes.removed}>−{compact(removed)}</span>
      </span>
    </Tooltip>
  );
}

export function checksOf(task: Pick<Task, "checks">) {
  const passed = task.checks.filter((check) => check.exit_code === 0).length;
  const failed = task.checks.filter((check) => check.exit_code !== null && check.exit_code !== 0).length;
  return { passed, failed, total: task.checks.length };
}

export function Checks({ task }: { task: Pick<Task, "checks"> }) {
  const { passed, failed, total } = checksOf(task);
  if (!total) return null;
  const tone = failed ? "bad" : passed === total ? "good" : "none";
  const Icon = failed ? X : passed === total ? Check : CircleDashed;
  const words = failed ? `${failed} of ${plural(total, "check")} failed` : passed === total ? `${plural(total, "check")} passed` : `${passed} of ${plural(total, "check")} passed so far`;
  return <Chip tone={tone} label={words} icon={<Icon size={12} strokeWidth={2.25} aria-hidden />}>{passed}/{total}</Chip>;
}

export function PullRequest({ task, link = false }: { task: Task; link?: boolean }) {
  const pull = task.pull_request;
  if (!pull) return null;
  const Icon = pull.state === "merged" ? GitMerge : pull.state === "closed" ? GitPullRequestClosed : GitPullRequest;
  const tone = pull.state === "merged" ? "violet" : pull.checks === "failure" ? "bad" : pull.checks === "success" ? "good" : "none";
  const words = `Pull request ${pull.number}: ${pull.draft ? "draft, " : ""}${pull.state}${pull.checks ? `, checks: ${pull.checks}` : ""}`;
  const chip = <Chip tone={tone} label={words} icon={<Icon size={12} aria-hidden />}>#{pull.number}</Chip>;
  return link ? <Link to={`/repositories/${encodeURIComponent(task.repository)}/pulls/${pull.number}` as string}>{chip}</Link> : chip;
}

export function Cost({ task }: { task: Pick<Task, "cost_usd" | "limits" | "tokens"> }) {
  const limit = task.limits.cost_usd;
  if (!task.cost_usd && !task.tokens.input) return null; // nothing was spent yet
  const cost = task.cost_usd ?? 0;
  const share = limit ? Math.min(1, cost / limit) : null;
  const words = `${dollars(cost)}${limit ? ` of ${dollars(limit)}` : ""} · ${compact(task.tokens.input)} tokens in, ${compact(task.tokens.output)} out`;
  return (
    <Tooltip label={words}>
      <span className={`${classes.cost} num`} aria-label={words}>
        {dollars(cost)}
        {share !== null && <i className={classes.budget}><b style={{ width: `${share * 100}%` }} data-high={share >= 0.8 || undefined} /></i>}
      </span>
    </Tooltip>
  );
}

export function Blocked({ task, byId }: { task: Task; byId: ReadonlyMap<string, Task> }) {
  const open = task.blocked_by.filter((id) => byId.get(id)?.state !== "done");
  if (!open.length || task.state !== "todo") return null;
  const names = open.map((id) => byId.get(id)?.title ?? id).join(", ");
  return <Chip tone="none" label={`Waits for: ${names}`} icon={<Lock size={11} aria-hidden />}>{open.length}</Chip>;
}

export function Isolation({ task }: { task: Pick<Task, "isolation"> }) {
  return task.isolation ? <Chip tone="none" label={`Isolation: ${task.isolation}`} icon={<ShieldCheck size={12} aria-hidden />}>{task.isolation}</Chip> : null;
}

export function Chip({ tone = "none", label, icon, children }: { tone?: "none" | "good" | "bad" | "violet" | "amber"; label?: string; icon?: ReactNode; children?: ReactNode }) {
  const chip = <span className={`${classes.chip} num`} data-tone={tone}>{icon}{children}{label && <span className="hidden-text"> {label}</span>}</span>;
  return label ? <Tooltip label={label}>{chip}</Tooltip> : chip;
}
