// The About tab: what was asked for, with all its settings and its relatives.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { FileDown } from "lucide-react";
import type { ReactNode } from "react";
import { api } from "../../api/client";
import { StateIcon } from "../../tasks/state-icon";
import { useTaskList, useTasks } from "../../tasks/store";
import { Markdown } from "../../timeline/markdown";
import { bytes, dollars } from "../../ui/format";
import { full, span } from "../../ui/time";
import type { TabProps } from ".";
import classes from "./about.module.css";

export default function AboutTab({ task }: TabProps) {
  const { data } = useTasks();
  const children = useTaskList().filter((each) => each.parent === task.id);
  const related = (id: string): ReactNode => {
    const found = data?.byId.get(id);
    return <Link key={id} to={`/tasks/${id}` as string} className={classes.link}>{found && <StateIcon state={found.state} labelled />}{found?.title ?? id}</Link>;
  };
  const rows: [string, ReactNode][] = [
    ["Id", <code>{task.id}</code>],
    ["Owner", task.user_id],
    ["Repository", task.repository],
    ["Base", task.base ?? "The default branch"],
    ["Agent", `${task.agent}${task.model ? `, model ${task.model}` : ""}`],
    ["Attempts", task.attempt_count > 1 ? `${task.attempt_count} side by side${task.agents.length ? `: ${task.agents.join(", ")}` : ""}` : "1"],
    ["Command", task.command && <code>{task.command}</code>],
    ["Template", task.template],
    ["Sandbox", task.sandbox_id && <code>{task.sandbox_id}</code>],
    ["Isolation", task.isolation],
    ["Limits", [span(task.limits.seconds * 1000), task.limits.turns && `${task.limits.turns} turns`, task.limits.cost_usd && dollars(task.limits.cost_usd), `${task.limits.attempts} tries at the checks`].filter(Boolean).join(" · ")],
    ["Network", task.network.internet ? "The internet" : task.network.allow.length ? `Only ${task.network.allow.join(", ")}` : "None but its repository"],
    ["Secrets", task.secrets.join(", ")],
    ["Labels", task.labels.join(", ")],
    ["Issue", task.issue && /^https?:/.test(task.issue) && <a href={task.issue} target="_blank" rel="noreferrer">{task.issue}</a>],
    ["Part of", task.parent && related(task.parent)],
    ["Waits for", task.blocked_by.length ? task.blocked_by.map(related) : null],
    ["Tasks below", children.length ? children.map((child) => related(child.id)) : null],
    ["Reviewers", task.reviewers.join(", ")],
    ["Files to keep", task.artifacts.length ? task.artifacts.map((path) => <code key={path}>{path}</code>) : null],
    ["Made", full(task.created_at)],
    ["Started", task.started_at && full(task.started_at)],
    ["Ended", task.ended_at && full(task.ended_at)],
  ];
  return (
    <div className={classes.page} tabIndex={0} role="region" aria-label="About">
      <section><h3>What was asked</h3><div className={classes.prompt}><Markdown text={task.prompt || task.title} /></div></section>
      <KeptFiles task={task} />
      <dl className={classes.rows}>{rows.filter(([, value]) => value).map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>
    </div>
  );
}

/** What was kept of the sandbox: it can be downloaded also when the sandbox is gone. */
function KeptFiles({ task }: TabProps) {
  const kept = useQuery({ queryKey: ["task", task.id, "artifacts", task.revision], queryFn: () => api.data(api.GET("/tasks/{id}/artifacts", { params: { path: { id: task.id } } })), placeholderData: (old) => old });
  if (!kept.data?.artifacts.length) return null;
  return (
    <section>
      <h3>Kept files</h3>
      <ul className={classes.kept}>
        {kept.data.artifacts.map((file) => (
          <li key={file.path}>
            <FileDown size={14} aria-hidden />
            <a className="cut grow" href={`/tasks/${task.id}/artifacts/${file.path.split("/").map(encodeURIComponent).join("/")}`} download={file.path.split("/").at(-1)}><code>{file.path}</code></a>
            <span className="faint num">{bytes(file.size)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
