// Parts that the pages with tables share: the state of a row, facts in a grid, a log.
import { CircleAlert, CircleCheck, CircleDot, CirclePause, CircleSlash, LoaderCircle, type LucideIcon } from "lucide-react";
import type { ReactNode } from "react";
import { timeOfDay } from "./time";
import classes from "./table.module.css";

type Tone = "good" | "bad" | "wait" | "busy" | "none";
const STATES: Record<string, [LucideIcon, Tone, string]> = {
  running: [CircleDot, "good", "Running"],
  paused: [CirclePause, "wait", "Paused"],
  pausing: [CirclePause, "wait", "Pausing"],
  resuming: [LoaderCircle, "busy", "Resuming"],
  ended: [CircleSlash, "none", "Ended"],
  deleted: [CircleSlash, "none", "Ended"],
  starting: [LoaderCircle, "busy", "Starting"],
  queued: [LoaderCircle, "wait", "Queued"],
  building: [LoaderCircle, "busy", "Building"],
  waiting: [LoaderCircle, "wait", "Waiting"],
  ready: [CircleCheck, "good", "Ready"],
  uploaded: [CircleCheck, "good", "Ready"],
  success: [CircleCheck, "good", "Passed"],
  error: [CircleAlert, "bad", "Failed"],
  failed: [CircleAlert, "bad", "Failed"],
  failure: [CircleAlert, "bad", "Failed"],
};

export function State({ name }: { name: string }) {
  const [Icon, tone, words] = STATES[name] ?? [CircleDot, "none" as Tone, name];
  return <span className={classes.state} data-tone={tone}><Icon size={14} aria-hidden />{words}</span>;
}

export function FactGrid({ facts, big = false }: { facts: readonly (readonly [string, ReactNode])[]; big?: boolean }) {
  return <dl className={`${classes.facts} ${big ? classes.big : ""}`}>{facts.map(([name, value]) => <div key={name}><dt>{name}</dt><dd className="num">{value}</dd></div>)}</dl>;
}

export interface LogLine {
  at: string;
  level: string;
  message: string;
  fields?: Readonly<Record<string, string>>;
}

/** What a line tells beside its words: the command first, as somebody would have typed it. */
function about({ fields = {} }: LogLine): ReactNode {
  const { cmd, logger: _, status: __, ...rest } = fields;
  const told = Object.entries(rest).filter(([, value]) => value !== "").map(([name, value]) => `${name}=${value}`);
  return <>{cmd && <span> $ {cmd.replace("/bin/bash -l -c ", "")}</span>}{told.length > 0 && <span className="dim"> {told.join(" ")}</span>}</>;
}

export function LogLines({ lines, label }: { lines: readonly LogLine[]; label: string }) {
  return (
    <div className={classes.log} tabIndex={0} role="region" aria-label={label}>
      {lines.map((line, n) => (
        <div key={n} data-level={line.level}>
          <span className="faint">{timeOfDay(new Date(line.at).getTime())}</span>
          <span className="faint">{line.level}</span>
          <span>{line.message}{about(line)}</span>
        </div>
      ))}
    </div>
  );
}
