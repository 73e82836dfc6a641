// What a view shows when it has no data to show: loading, empty, failed, not allowed, gone.
import { Button, Skeleton } from "@mantine/core";
import type { UseQueryResult } from "@tanstack/react-query";
import { Ban, CircleSlash, CloudOff, type LucideIcon } from "lucide-react";
import { useEffect, useState, type ReactNode } from "react";
import { ApiError } from "../api/client";
import classes from "./states.module.css";

/** Grey lines, but only if it takes longer than a glance. */
export function Loading({ lines = 6 }: { lines?: number }) {
  const [shown, show] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => show(true), 200);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div className={classes.loading} role="status" aria-label="Loading">
      {shown && Array.from({ length: lines }, (_, n) => <Skeleton key={n} height={14} width={`${92 - ((n * 37) % 45)}%`} />)}
    </div>
  );
}

interface NoticeProps {
  icon: LucideIcon;
  title: string;
  children?: ReactNode;
  action?: ReactNode;
  lines?: string; // the commands that do the same
}

export function Notice({ icon: Icon, title, children, action, lines }: NoticeProps) {
  return (
    <div className={classes.notice}>
      <Icon size={22} strokeWidth={1.5} aria-hidden className={classes.icon} />
      <h2>{title}</h2>
      {children && <div className={classes.words}>{children}</div>}
      {action && <div className={classes.action}>{action}</div>}
      {lines && <pre className={classes.lines} tabIndex={0}>{lines}</pre>}
    </div>
  );
}

export const Empty = Notice;

export function Failed({ error, retry }: { error: unknown; retry?: () => void }) {
  const known = error instanceof ApiError ? error : null;
  const words = error instanceof Error ? error.message : String(error);
  if (known?.isForbidden) {
    return (
      <Notice icon={Ban} title="Not for this key">
        {words}
      </Notice>
    );
  }
  if (known?.isGone) {
    return (
      <Notice icon={CircleSlash} title="It is gone">
        {words}
      </Notice>
    );
  }
  return (
    <Notice icon={CloudOff} title="That did not work" action={retry && <Button variant="default" onClick={retry}>Try again</Button>}>
      <span role="alert">{words}</span>
      {known?.requestId && <code className={classes.request}>request {known.requestId}</code>}
    </Notice>
  );
}

/** A query's data, or what stands in its place. Data that could not be renewed stays on the page. */
export function Shown<T>({ query, children, loading }: { query: UseQueryResult<T>; children: (data: T) => ReactNode; loading?: ReactNode }) {
  if (query.data !== undefined) return <>{children(query.data)}</>;
  if (query.isError) return <Failed error={query.error} retry={() => void query.refetch()} />;
  return <>{loading ?? <Loading />}</>;
}
