// A task's state as a shape and a colour; the shape alone tells it, too.
import type { TaskState } from "../api/client";
import { STATE_NAMES } from "./lanes";
import classes from "./state-icon.module.css";

export function StateIcon({ state, size = 14, labelled = false }: { state: TaskState; size?: number; labelled?: boolean }) {
  return (
    <svg width={size} height={size} viewBox="0 0 14 14" className={`${classes.icon} ${classes[state]}`} role={labelled ? "img" : undefined} aria-label={labelled ? STATE_NAMES[state] : undefined} aria-hidden={!labelled}>
      {SHAPES[state]}
    </svg>
  );
}

const ring = <circle cx="7" cy="7" r="5.5" fill="none" stroke="currentColor" strokeWidth="1.5" />;
const disc = <circle cx="7" cy="7" r="6.25" fill="currentColor" />;
const mark = { fill: "none", stroke: "var(--surface)", strokeWidth: 1.6, strokeLinecap: "round", strokeLinejoin: "round" } as const;
const SHAPES: Record<TaskState, React.ReactNode> = {
  todo: ring,
  queued: <circle cx="7" cy="7" r="5.5" fill="none" stroke="currentColor" strokeWidth="1.5" strokeDasharray="2.2 2.1" />,
  working: (
    <>
      <circle cx="7" cy="7" r="5.5" fill="none" stroke="currentColor" strokeWidth="1.5" opacity=".3" />
      <path className={classes.spin} d="M7 1.5a5.5 5.5 0 0 1 5.5 5.5" fill="none" stroke="currentColor" strokeWidth="1.6" strokeLinecap="round" />
      <circle cx="7" cy="7" r="2.2" fill="currentColor" />
    </>
  ),
  needs_you: <>{disc}<path d="M7 3.8v3.6M7 9.9v.1" {...mark} /></>,
  review: <>{ring}<circle cx="7" cy="7" r="2.6" fill="currentColor" /></>,
  done: <>{disc}<path d="m4.4 7.2 1.9 1.9 3.4-3.9" {...mark} /></>,
  failed: <>{disc}<path d="m5 5 4 4M9 5 5 9" {...mark} /></>,
  cancelled: <>{ring}<path d="m4.6 9.4 4.8-4.8" stroke="currentColor" strokeWidth="1.5" strokeLinecap="round" /></>,
};
