// What the form of a new task holds, and the same task as a request, as a command line and as a call with curl.
import type { Schemas } from "../../api/client";

export interface Form {
  repository: string | null;
  prompt: string;
  title: string;
  base: string | null;
  agent: string | null;
  model: string;
  command: string;
  checks: string[];
  minutes: number;
  cost: number | null;
  turns: number | null;
  tries: number;
  internet: boolean;
  allow: string[];
  secrets: string[];
  labels: string[];
  blockedBy: string[];
  attempts: number;
  issue: string;
  start: boolean;
}
export const EMPTY: Form = {
  repository: null, prompt: "", title: "", base: null, agent: null, model: "", command: "", checks: [], minutes: 60, cost: null, turns: null, tries: 3,
  internet: true, allow: [], secrets: [], labels: [], blockedBy: [], attempts: 1, issue: "", start: true,
};
type Body = Schemas["CreateTask"];

/** Only what differs from the server's own defaults. */
export function body(form: Form): Partial<Body> {
  const limits = {
    ...(form.minutes !== 60 && { seconds: form.minutes * 60 }),
    ...(form.turns && { turns: form.turns }),
    ...(form.cost && { cost_usd: form.cost }),
    ...(form.tries !== 3 && { attempts: form.tries }),
  };
  return {
    ...(form.repository && { repository: form.repository }),
    ...(form.prompt.trim() && { prompt: form.prompt.trim() }),
    ...(form.title.trim() && { title: form.title.trim() }),
    ...(form.base && { base: form.base }),
    ...(form.agent && { agent: form.agent }),
    ...(form.model.trim() && { model: form.model.trim() }),
    ...(form.agent === "command" && form.command.trim() && { command: form.command.trim() }),
    ...(form.checks.length && { checks: form.checks }),
    ...(Object.keys(limits).length && { limits: limits as Body["limits"] }),
    ...(!form.internet && { network: { internet: false, allow: form.allow } }),
    ...(form.secrets.length && { secrets: form.secrets }),
    ...(form.labels.length && { labels: form.labels }),
    ...(form.blockedBy.length && { blocked_by: form.blockedBy }),
    ...(form.attempts > 1 && { attempts: form.attempts }),
    ...(form.issue.trim() && { issue: form.issue.trim() }),
    ...(!form.start && { start: false }),
  };
}

function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

export function commandLine(form: Form): string {
  const words: string[] = ["./sandlot task create"];
  const option = (name: string, value: string | number | null | undefined) => value !== null && value !== undefined && value !== "" && words.push(`--${name} ${quoted(String(value))}`);
  words.push(form.issue.trim() && !form.repository ? "" : quoted(form.repository ?? "REPOSITORY"));
  if (form.prompt.trim() || !form.issue.trim()) words.push(quoted(form.prompt.trim() || "PROMPT"));
  option("agent", form.agent);
  if (form.agent === "command") option("command", form.command.trim());
  form.checks.forEach((check) => option("check", check));
  option("from-issue", form.issue.trim());
  option("base", form.base);
  option("model", form.model.trim());
  if (form.attempts > 1) option("attempts", form.attempts);
  form.blockedBy.forEach((id) => option("blocked-by", id));
  option("title", form.title.trim());
  form.labels.forEach((label) => option("label", label));
  if (form.minutes !== 60) option("time", `${form.minutes}m`);
  option("turns", form.turns);
  option("cost", form.cost);
  if (form.tries !== 3) option("tries", form.tries);
  if (!form.internet) words.push("--no-internet");
  if (!form.internet) form.allow.forEach((host) => option("allow", host));
  form.secrets.forEach((secret) => option("secret", secret));
  if (!form.start) words.push("--no-start");
  return words.filter(Boolean).join(" \\\n  ");
}

export function curl(form: Form): string {
  const json = JSON.stringify(body(form), null, 2).replaceAll("'", "'\\''");
  return `curl ${location.origin}/tasks \\\n  -H "X-API-KEY: $SANDLOT_PLATFORM_KEY" \\\n  -H 'Content-Type: application/json' \\\n  -d '${json}'`;
}
