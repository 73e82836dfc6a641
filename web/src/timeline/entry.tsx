// One item of a timeline, drawn by its kind. Long parts are folded.
import { Button } from "@mantine/core";
import {
  ArrowRight, Brain, ChevronRight, CircleHelp, Coins, FilePen, FlaskConical, GitCommitHorizontal, MessageSquare, OctagonAlert, Sparkles, Terminal, User, Wrench,
  type LucideIcon,
} from "lucide-react";
import { memo, useState, type ReactNode } from "react";
import type { Entry, TaskState } from "../api/client";
import { STATE_NAMES } from "../tasks/lanes";
import { StateIcon } from "../tasks/state-icon";
import { compact, dollars } from "../ui/format";
import { timeOfDay, took } from "../ui/time";
import { Markdown } from "./markdown";
import type { Item } from "./store";
import classes from "./entry.module.css";

type Data = Record<string, unknown>;
const text = (value: unknown) => (typeof value === "string" ? value : value === undefined || value === null ? "" : JSON.stringify(value));
const num = (value: unknown) => (typeof value === "number" ? value : null);

const ICONS: Record<Entry["kind"], LucideIcon> = {
  message: MessageSquare, thinking: Brain, command: Terminal, edit: FilePen, tool: Wrench, test: FlaskConical, git: GitCommitHorizontal,
  question: CircleHelp, usage: Coins, error: OctagonAlert, result: Sparkles, step: ArrowRight, prompt: User, state: ArrowRight,
};

export interface EntryProps {
  item: Item;
  isMarked: boolean;
  onMark: (seq: number) => void;
  onAnswer?: (text: string) => void;
}

export const EntryRow = memo(function EntryRow({ item, isMarked, onMark, onAnswer }: EntryProps) {
  const { entry } = item;
  const Icon = ICONS[entry.kind] ?? MessageSquare;
  const at = new Date(entry.at).getTime();
  return (
    <div className={classes.row} data-kind={entry.kind} data-marked={isMarked || undefined} id={`e${item.seq}`}>
      <span className={classes.icon}>{entry.kind === "state" ? <StateIcon state={text(entry.data["state"] ?? entry.data["to"]) as TaskState} /> : <Icon size={14} strokeWidth={1.75} aria-hidden />}</span>
      <div className={classes.body}>{body(entry, onAnswer)}</div>
      <a className={`${classes.time} num`} href={`#e${item.seq}`} onClick={(event) => (event.preventDefault(), onMark(item.seq))} aria-label={`Link to this entry, ${timeOfDay(at)}`}>{timeOfDay(at)}</a>
    </div>
  );
});

function body(entry: Entry, onAnswer?: (text: string) => void): ReactNode {
  const data = entry.data as Data;
  switch (entry.kind) {
    case "message": return <Markdown text={entry.text} />;
    case "prompt": return <div className={classes.prompt}>{text(data["by"]) && <b>{text(data["by"])}</b>}<Markdown text={entry.text} /></div>;
    case "thinking": return <Folded head={<span className="dim">Thought: <i>{entry.text.split("\n")[0]!.slice(0, 120)}</i></span>} full={entry.text.length > 120 || entry.text.includes("\n")}><div className={classes.thought}>{entry.text}</div></Folded>;
    case "command": return <Command data={data} fallback={entry.text} />;
    case "test": return <Command data={{ ...data, command: data["command"] ?? entry.text }} fallback={entry.text} tests />;
    case "edit": return <Edit data={data} fallback={entry.text} />;
    case "tool": return <Tool data={data} fallback={entry.text} />;
    case "git": return <span><span className="dim">{text(data["action"])}</span> {entry.text || text(data["text"])} {text(data["sha"]) && <code>{text(data["sha"]).slice(0, 8)}</code>}</span>;
    case "question": return <Question data={data} words={entry.text || text(data["text"])} onAnswer={onAnswer} />;
    case "usage": return <span className="faint num">{compact(num(data["input"]) ?? 0)} tokens in, {compact(num(data["output"]) ?? 0)} out{num(data["cost_usd"]) !== null && ` · ${dollars(num(data["cost_usd"])!)}`}</span>;
    case "error": return <Folded head={<span className={classes.bad}>{entry.text.split("\n")[0]}</span>} full={entry.text.includes("\n")}><pre className={classes.output} tabIndex={0}>{entry.text}</pre></Folded>;
    case "result": return <div className={classes.result}><Markdown text={entry.text || text(data["text"])} /></div>;
    case "step": return <Step entry={entry} />;
    case "state": return <span><b>{STATE_NAMES[text(data["state"] ?? data["to"]) as TaskState] ?? text(data["state"])}</b>{entry.text && <span className="dim"> · {entry.text}</span>}</span>;
  }
}

// Each step while it runs, when it is done, and as a noun.
const STEPS: Record<string, readonly [string, string, string]> = {
  sandbox: ["Starting a sandbox", "Sandbox started", "Sandbox"],
  clone: ["Cloning the repository", "Repository cloned", "Clone"],
  branch: ["Making the branch", "Branch made", "Branch"],
  setup: ["Setting up", "Set up", "Set-up"],
  reproduce: ["Reproducing the failure", "Failure reproduced", "Reproducing"],
  agent: ["The agent is at work", "The agent has finished", "Agent"],
  checks: ["Running the checks", "Checks done", "Checks"],
  prove: ["Proving the fix", "Fix proven", "Proof"],
  commit: ["Committing", "Committed", "Commit"],
  push: ["Pushing", "Pushed", "Push"],
  pull_request: ["Opening the pull request", "Pull request opened", "Pull request"],
  cleanup: ["Cleaning up", "Cleaned up", "Clean-up"],
  report: ["Reporting to the forge", "Reported to the forge", "Report"],
};

function Step({ entry }: { entry: Entry }) {
  const { name, status, attempt, problem, ended_at: ended } = entry.data as Data;
  const [doing, done, noun] = STEPS[text(name)] ?? [text(name), text(name), text(name)];
  const words = status === "running" ? doing : status === "done" ? done : status === "failed" ? `${noun} failed` : `${noun} skipped`;
  const ms = ended ? new Date(text(ended)).getTime() - new Date(entry.at).getTime() : null;
  return (
    <span className="dim">
      <span className={status === "failed" ? classes.bad : undefined}>{words}</span>
      {(num(attempt) ?? 1) > 1 && <span className="faint">, try {num(attempt)}</span>}
      {ms !== null && ms >= 50 && <span className="faint num"> · {took(ms)}</span>}
      {text(problem) && <span className={classes.bad}>: {text(problem)}</span>}
    </span>
  );
}

function Folded({ head, children, full, open = false }: { head: ReactNode; children: ReactNode; full: boolean; open?: boolean }) {
  const [isOpen, setOpen] = useState(open);
  if (!full) return <>{head}</>;
  return (
    <div>
      <button type="button" className={classes.fold} aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        <span className={classes.folded}>{head}</span>
        <ChevronRight size={13} aria-hidden className={classes.arrow} />
      </button>
      {isOpen && children}
    </div>
  );
}

const TAIL = 6;

function Command({ data, fallback, tests = false }: { data: Data; fallback: string; tests?: boolean }) {
  const [all, setAll] = useState(false);
  const output = text(data["output"]);
  const code = num(data["exit_code"]);
  const lines = output ? output.replace(/\n$/, "").split("\n") : [];
  const isRunning = data["running"] === true && code === null;
  const [passed, failed] = [num(data["passed"]), num(data["failed"])];
  return (
    <div>
      <div className={classes.command}>
        <code><span className="faint">$ </span>{text(data["command"]) || fallback}</code>
        {isRunning && <span className={classes.running}>running</span>}
        {tests && passed !== null && <span className={failed ? classes.bad : classes.good}>{passed} passed{failed ? `, ${failed} failed` : ""}</span>}
        {code !== null && code !== 0 && <span className={classes.bad}>exit {code}</span>}
        {tests && code === 0 && passed === null && <span className={classes.good}>passed</span>}
      </div>
      {lines.length > 0 && (
        <pre className={classes.output} tabIndex={0} aria-label="Output">
          {!all && lines.length > TAIL && <button type="button" className={classes.lines} onClick={() => setAll(true)}>{lines.length - TAIL} lines before</button>}
          {(all ? lines : lines.slice(-TAIL)).join("\n")}
        </pre>
      )}
    </div>
  );
}

function Edit({ data, fallback }: { data: Data; fallback: string }) {
  const diff = text(data["diff"]);
  const head = (
    <span>
      <code className={classes.path}>{text(data["path"]) || fallback}</code>{" "}
      <span className="num">
        {num(data["added"]) !== null && <span className={classes.good}>+{num(data["added"])}</span>} {num(data["removed"]) !== null && <span className={classes.bad}>−{num(data["removed"])}</span>}
      </span>
    </span>
  );
  return (
    <Folded head={head} full={diff !== ""}>
      <pre className={classes.output} tabIndex={0} aria-label="Change">
        {diff.split("\n").map((line, n) => <span key={n} className={line.startsWith("+") ? classes.plus : line.startsWith("-") ? classes.minus : undefined}>{line}{"\n"}</span>)}
      </pre>
    </Folded>
  );
}

function Tool({ data, fallback }: { data: Data; fallback: string }) {
  const input = typeof data["input"] === "string" ? data["input"] : data["input"] ? JSON.stringify(data["input"], null, 1) : "";
  const output = text(data["output"]);
  const brief = input.replace(/\s+/g, " ").slice(0, 100);
  return (
    <Folded head={<span>{text(data["name"]) || fallback} <code className="faint">{brief}</code>{data["ok"] === false && <span className={classes.bad}> failed</span>}</span>} full={Boolean(output) || input.length > 100}>
      <pre className={classes.output} tabIndex={0}>{[input, output].filter(Boolean).join("\n\n")}</pre>
    </Folded>
  );
}

function Question({ data, words, onAnswer }: { data: Data; words: string; onAnswer?: (text: string) => void }) {
  const options = Array.isArray(data["options"]) ? data["options"].map(text).filter(Boolean).slice(0, 12) : [];
  return (
    <div className={classes.question}>
      <Markdown text={words} />
      {options.length > 0 && onAnswer && (
        <div className={classes.options}>{options.map((option) => <Button key={option} variant="default" onClick={() => onAnswer(option)}>{option}</Button>)}</div>
      )}
    </div>
  );
}
