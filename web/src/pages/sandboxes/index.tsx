// All sandboxes that the caller may see: running and paused, and those that are over.
import { Button, Checkbox, CloseButton, SegmentedControl, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Box, Plus } from "lucide-react";
import { useMemo, useState } from "react";
import { api } from "../../api/client";
import { useGo, useSearchState } from "../../app/navigation";
import { mayWrite, useMe } from "../../app/session";
import { plural } from "../../ui/format";
import { PageFrame, PageHead } from "../../ui/page";
import { Empty, Shown } from "../../ui/states";
import { State } from "../../ui/table";
import table from "../../ui/table.module.css";
import { Ago, span, useNow } from "../../ui/time";
import { ACT_NAMES, mayDo, useSandboxActs, type Sandbox, type SandboxAct } from "./acts";

export default function Sandboxes() {
  const [search, change] = useSearchState();
  const go = useGo();
  const me = useMe();
  const over = search["show"] === "ended";
  return (
    <PageFrame
      head={
        <PageHead title="Sandboxes">
          <TextInput placeholder="Filter" aria-label="Filter sandboxes by words" value={search["q"] ?? ""} onChange={(event) => change({ q: event.currentTarget.value })} />
          <SegmentedControl aria-label="Which sandboxes" value={over ? "ended" : "live"} onChange={(value) => change({ show: value === "ended" ? value : undefined })} data={[{ value: "live", label: "Live" }, { value: "ended", label: "Ended" }]} />
          {mayWrite(me) && <Button leftSection={<Plus size={14} />} onClick={() => go("/templates")} visibleFrom="xs">Start one</Button>}
        </PageHead>
      }
    >
      {over ? <Ended words={search["q"]} /> : <Live words={search["q"]} />}
    </PageFrame>
  );
}

const matches = (words: string | undefined, ...texts: (string | null | undefined)[]) => !words || texts.some((text) => text?.toLowerCase().includes(words.toLowerCase()));

function Live({ words }: { words?: string }) {
  const me = useMe();
  const act = useSandboxActs();
  const [chosen, choose] = useState<ReadonlySet<string>>(new Set());
  const list = useQuery({ queryKey: ["sandboxes"], queryFn: () => api.data(api.GET("/console/api/sandboxes")), refetchInterval: 3000 });
  const rows = useMemo(() => (list.data?.sandboxes ?? []).filter((one) => matches(words, one.id, one.name, one.template, one.user_id, ...Object.values(one.metadata))), [list.data, words]);
  const selected = rows.filter((one) => chosen.has(one.id));
  const toggle = (id: string) => choose((old) => { const next = new Set(old); if (!next.delete(id)) next.add(id); return next; });
  return (
    <Shown query={list}>
      {({ sandboxes }) =>
        !sandboxes.length ? (
          <Empty icon={Box} title="No sandboxes" lines={'from e2b import Sandbox\nsandbox = Sandbox.create()'}>One starts from a template, by a task, or by any E2B SDK with this server’s address.</Empty>
        ) : (
          <div className={table.page}>
            <div className={table.scroll} style={{ flex: 1, height: "auto", minHeight: 0 }} tabIndex={0} role="region" aria-label="Sandboxes">
              <table className={table.table}>
                <thead>
                  <tr>
                    <th style={{ width: 28 }}><Checkbox aria-label="Select all" checked={selected.length > 0 && selected.length === rows.length} indeterminate={selected.length > 0 && selected.length < rows.length} onChange={() => choose(selected.length === rows.length ? new Set() : new Set(rows.map((one) => one.id)))} /></th>
                    <th>Sandbox</th><th>State</th><th data-wide>Template</th><th data-wide>Owner</th><th data-wide>Isolation</th><th data-wide data-right>Size</th><th data-wide data-right>Age</th><th data-right>Time left</th>
                  </tr>
                </thead>
                <tbody>
                  {rows.map((one) => (
                    <tr key={one.id} data-selected={chosen.has(one.id) || undefined}>
                      <td><Checkbox aria-label={`Select ${one.name ?? one.id}`} checked={chosen.has(one.id)} onChange={() => toggle(one.id)} /></td>
                      <td><Link to={`/sandboxes/${one.id}` as string}>{one.name ?? <code>{one.id}</code>}</Link>{one.fork_of && <span className="faint"> fork</span>}{one.task_id && <span className="faint"> task {one.task_id}</span>}</td>
                      <td><State name={one.state} /></td>
                      <td data-wide className="dim">{one.template}</td>
                      <td data-wide className="dim">{one.user_id ?? <span className="faint">nobody</span>}</td>
                      <td data-wide className="dim">{one.isolation ?? "–"}</td>
                      <td data-wide data-right className="dim num">{one.cpu} vCPU · {one.memory_mb} MiB</td>
                      <td data-wide data-right className="faint"><Ago at={one.started_at} /></td>
                      <td data-right className="faint"><Left sandbox={one} /></td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
            {selected.length > 0 && mayWrite(me) && (
              <div className={table.bulk} role="toolbar" aria-label="Selected sandboxes">
                <span>{plural(selected.length, "sandbox", "sandboxes")} selected</span>
                {(["pause", "resume", "fork", "kill"] as SandboxAct[]).map((name) => {
                  const count = selected.filter((one) => mayDo(one, name)).length;
                  return count ? <Button key={name} size="compact-sm" variant={name === "kill" ? "subtle" : "default"} color={name === "kill" ? "red" : undefined} onClick={() => void act(selected, name).then((done) => done && choose(new Set()))}>{ACT_NAMES[name]}{count < selected.length ? ` (${count})` : ""}</Button> : null;
                })}
                <CloseButton aria-label="Clear the selection" onClick={() => choose(new Set())} />
              </div>
            )}
          </div>
        )
      }
    </Shown>
  );
}

export function Left({ sandbox }: { sandbox: Pick<Sandbox, "state" | "ends_at"> }) {
  const now = useNow(1000);
  return <span className="num">{sandbox.state === "paused" ? "–" : span(new Date(sandbox.ends_at).getTime() - now)}</span>;
}

/** The engine’s words for ends that need more of them. */
const ENDS: Record<string, string> = { killed: "Ended by hand", timeout: "Its time was over" };

function Ended({ words }: { words?: string }) {
  const list = useQuery({ queryKey: ["sandboxes", "ended"], queryFn: () => api.data(api.GET("/console/api/sandboxes/ended", { params: { query: { limit: 500 } } })), refetchInterval: 10_000 });
  return (
    <Shown query={list}>
      {({ sandboxes }) => {
        const rows = sandboxes.filter((one) => matches(words, one.id, one.name, one.template, one.user_id, one.end_reason));
        if (!rows.length) return <Empty icon={Box} title="None that is remembered">Sandboxes that ended are remembered for a day, with their logs and numbers.</Empty>;
        return (
          <table className={table.table}>
            <thead><tr><th>Sandbox</th><th>Template</th><th data-wide>Owner</th><th>Why it ended</th><th data-wide data-right>Ran for</th><th data-right>Ended</th></tr></thead>
            <tbody>
              {rows.map((one) => (
                <tr key={one.id}>
                  <td><Link to={`/sandboxes/${one.id}` as string}>{one.name ?? <code>{one.id}</code>}</Link></td>
                  <td className="dim">{one.template}</td>
                  <td data-wide className="dim">{one.user_id ?? <span className="faint">nobody</span>}</td>
                  <td className="dim">{one.end_reason ? (ENDS[one.end_reason] ?? one.end_reason) : "–"}</td>
                  <td data-wide data-right className="faint num">{one.ended_at ? span(new Date(one.ended_at).getTime() - new Date(one.created_at).getTime()) : "–"}</td>
                  <td data-right className="faint">{one.ended_at ? <Ago at={one.ended_at} suffix=" ago" /> : "–"}</td>
                </tr>
              ))}
            </tbody>
          </table>
        );
      }}
    </Shown>
  );
}
