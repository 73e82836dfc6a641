// The Checks tab: the task's own checks with what they wrote, the steps of its run, its attempts, the pull request's checks.
import { useQuery } from "@tanstack/react-query";
import { Check, CircleDashed, CircleDot, ListChecks, Minus, X } from "lucide-react";
import { api, type Schemas, type Task } from "../../api/client";
import { Changes, Cost } from "../../tasks/parts";
import { Empty } from "../../ui/states";
import { span, took } from "../../ui/time";
import type { TabProps } from ".";
import classes from "./checks.module.css";

export default function Checks({ task }: TabProps) {
  const stamp = [task.revision];
  const params = { params: { path: { id: task.id } } };
  const steps = useQuery({ queryKey: ["task", task.id, "steps", ...stamp], queryFn: () => api.data(api.GET("/tasks/{id}/steps", params)), placeholderData: (old) => old });
  const attempts = useQuery({ queryKey: ["task", task.id, "attempts", ...stamp], queryFn: () => api.data(api.GET("/tasks/{id}/attempts", params)), placeholderData: (old) => old });
  const tries = attempts.data?.attempts ?? [];
  const ran = steps.data?.steps ?? [];
  if (!task.checks.length && !ran.length) {
    return <Empty icon={ListChecks} title="No checks">Commands that must end with 0 before a task counts as done, given when the task is made.</Empty>;
  }
  return (
    <div className={classes.page} tabIndex={0} role="region" aria-label="Checks">
      {task.checks.length > 0 && (
        <section>
          <h3>Done when these pass</h3>
          {task.checks.map((check) => <CheckBlock key={check.command} check={check} />)}
        </section>
      )}
      <PullChecks task={task} />
      {tries.length > 1 && (
        <section>
          <h3>Attempts</h3>
          <table className={classes.table}>
            <thead><tr><th>Attempt</th><th>Agent</th><th>State</th><th>Changes</th><th>Time</th><th>Cost</th></tr></thead>
            <tbody>
              {tries.map((attempt) => (
                <tr key={attempt.number} data-chosen={attempt.chosen || undefined}>
                  <td>{attempt.number}{attempt.chosen && " · chosen"}</td><td>{attempt.agent}</td><td>{attempt.state}{attempt.problem && <span className={classes.bad}> · {attempt.problem}</span>}</td>
                  <td><Changes task={attempt} /></td><td className="num">{span(attempt.seconds * 1000)}</td><td><Cost task={{ ...task, cost_usd: attempt.cost_usd }} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
      {ran.length > 0 && (
        <section>
          <h3>Steps of the last run</h3>
          {ran.map((step, n) => <StepLine key={n} step={step} several={tries.length > 1} />)}
        </section>
      )}
    </div>
  );
}

function CheckBlock({ check }: { check: Schemas["CheckInfo"] }) {
  const ran = check.exit_code !== null;
  const good = check.exit_code === 0;
  return (
    <details className={classes.check} open={ran && !good}>
      <summary>
        <Mark state={!ran ? "pending" : good ? "done" : "failed"} />
        <code className="cut grow">{check.command}</code>
        <span className="faint num">{ran ? (good ? took(check.seconds * 1000) : `exit ${check.exit_code}`) : "not run yet"}</span>
      </summary>
      {ran && <pre tabIndex={0}>{check.output || "It wrote nothing."}</pre>}
    </details>
  );
}

function PullChecks({ task }: { task: Task }) {
  const number = task.pull_request?.number;
  const pull = useQuery({
    queryKey: ["pull", task.repository, number],
    queryFn: () => api.data(api.GET("/repositories/{name}/pulls/{number}", { params: { path: { name: task.repository, number: number! } } })),
    enabled: number !== undefined,
    refetchInterval: 20_000,
  });
  if (!pull.data?.checks.length) return null;
  return (
    <section>
      <h3>Checks of pull request {number}</h3>
      {pull.data.checks.map((check) => (
        <div key={check.name} className={classes.step}>
          <Mark state={check.status === "success" ? "done" : check.status === "failure" ? "failed" : "running"} />
          <span className="grow">{check.name}</span>
          {check.url && /^https?:/.test(check.url) && <a href={check.url} target="_blank" rel="noreferrer">Details</a>}
        </div>
      ))}
    </section>
  );
}

const NAMES: Record<string, string> = { sandbox: "Start a sandbox", clone: "Clone the repository", branch: "Make the branch", setup: "Set up", reproduce: "Reproduce the failure", agent: "Let the agent work", checks: "Run the checks", prove: "Prove the fix", commit: "Commit", push: "Push", pull_request: "Open the pull request", cleanup: "Clean up", report: "Report to the forge" };

function StepLine({ step, several }: { step: Schemas["StepInfo"]; several: boolean }) {
  const ms = step.started_at && step.ended_at ? new Date(step.ended_at).getTime() - new Date(step.started_at).getTime() : null;
  return (
    <div className={classes.step}>
      <Mark state={step.status} />
      <span className="grow">{several && <span className="faint">{step.number} · </span>}{NAMES[step.name] ?? step.name}{step.attempt > 1 && <span className="faint"> · try {step.attempt}</span>}{step.problem && <span className={classes.bad}> · {step.problem}</span>}</span>
      <span className="faint num">{ms === null ? step.status : took(ms)}</span>
    </div>
  );
}

function Mark({ state }: { state: Schemas["StepStatus"] }) {
  const Icon = { pending: CircleDashed, running: CircleDot, done: Check, failed: X, skipped: Minus }[state];
  return <span className={classes.mark} data-state={state}><Icon size={14} aria-hidden /><span className="hidden-text">{state}</span></span>;
}
