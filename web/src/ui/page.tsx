// A page's heading with its actions, and its body, the same on every page.
import type { ReactNode } from "react";
import classes from "./page.module.css";

export function PageHead({ title, children, note }: { title: ReactNode; children?: ReactNode; note?: ReactNode }) {
  return (
    <header className={classes.head}>
      <h1>{title}</h1>
      {note && <span className={classes.note}>{note}</span>}
      <div className={classes.actions}>{children}</div>
    </header>
  );
}

/** Head above, the rest scrolls. */
export function PageFrame({ head, children }: { head: ReactNode; children: ReactNode }) {
  return (
    <div className={classes.frame}>
      {head}
      <div className={classes.body}>{children}</div>
    </div>
  );
}
