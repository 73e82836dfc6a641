// The Numbers tab: what the task has cost, and what its sandbox uses, with the steps of its run as marks.
import { useQuery } from "@tanstack/react-query";
import { api } from "../../api/client";
import { SandboxUsage } from "../../inside/usage";
import { compact, dollars } from "../../ui/format";
import { span } from "../../ui/time";
import type { TabProps } from ".";
import classes from "./numbers.module.css";

export default function NumbersTab({ task }: TabProps) {
  const params = { params: { path: { id: task.id } } };
  const steps = useQuery({ queryKey: ["task", task.id, "steps", task.revision], queryFn: () => api.data(api.GET("/tasks/{id}/steps", params)), placeholderData: (old) => old });
  const attempts = useQuery({ queryKey: ["task", task.id, "attempts", task.revision], queryFn: () => api.data(api.GET("/tasks/{id}/attempts", params)), placeholderData: (old) => old });
  const marks = (steps.data?.steps ?? []).flatMap((step) => (step.started_at ? [{ at: new Date(step.started_at).getTime(), label: step.name }] : []));
  const seconds = (attempts.data?.attempts ?? []).reduce((sum, attempt) => sum + attempt.seconds, 0);
  const facts: [string, string][] = [
    ["Cost", task.cost_usd === null ? "–" : dollars(task.cost_usd)],
    ["Budget", task.limits.cost_usd ? dollars(task.limits.cost_usd) : "None"],
    ["Tokens in", compact(task.tokens.input)],
    ["From the cache", compact(task.tokens.cached)],
    ["Tokens out", compact(task.tokens.output)],
    ["Agent’s time", seconds ? span(seconds * 1000) : "–"],
    ["Time limit", span(task.limits.seconds * 1000)],
  ];
  return (
    <div className={classes.page} tabIndex={0} role="region" aria-label="Numbers">
      <dl className={classes.facts}>{facts.map(([name, value]) => <div key={name}><dt>{name}</dt><dd className="num">{value}</dd></div>)}</dl>
      {task.sandbox_id ? <SandboxUsage sandboxId={task.sandbox_id} marks={marks} /> : <p className="dim">CPU, memory and disk appear here when the task has a sandbox.</p>}
    </div>
  );
}
