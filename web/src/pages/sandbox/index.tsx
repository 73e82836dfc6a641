// One sandbox: what it is and went through, its numbers, log, terminal, screen, files and ports. Readable after its end.
import { Button, Menu, Tabs } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Ban, ChevronLeft, EllipsisVertical, ScrollText } from "lucide-react";
import { lazy, Suspense, type ReactNode } from "react";
import { api, type Schemas } from "../../api/client";
import { useParam, useSearchState } from "../../app/navigation";
import { mayWrite, useMe } from "../../app/session";
import { Files } from "../../inside/files";
import { RunningSandbox, useSandbox } from "../../inside/gate";
import { Ports } from "../../inside/ports";
import { SandboxUsage } from "../../inside/usage";
import { failed } from "../../tasks/acts";
import { CodeBlock } from "../../ui/copy";
import { Loading, Notice, Shown } from "../../ui/states";
import { FactGrid, LogLines, State } from "../../ui/table";
import table from "../../ui/table.module.css";
import { Ago, full, span, timeOfDay } from "../../ui/time";
import { ACT_NAMES, mayDo, useSandboxActs, type Sandbox, type SandboxAct } from "../sandboxes/acts";
import { Left } from "../sandboxes";

const Screen = lazy(async () => ({ default: (await import("../../inside/screen")).Screen }));
const Terminals = lazy(async () => ({ default: (await import("../../inside/terminal")).Terminals }));
type Past = Schemas["ConsolePastSandbox"];
const TABS = ["overview", "numbers", "log", "terminal", "screen", "files", "ports"] as const;
const NAMES: Record<(typeof TABS)[number], string> = { overview: "Overview", numbers: "Numbers", log: "Log", terminal: "Terminal", screen: "Screen", files: "Files", ports: "Ports" };
const path = (id: string) => ({ params: { path: { sandbox_id: id } } });

export default function SandboxPage() {
  const id = useParam("id");
  const me = useMe();
  const [search, change] = useSearchState();
  const sandbox = useSandbox(id);
  const life = useQuery({ queryKey: ["sandbox", id, "life"], queryFn: () => api.data(api.GET("/console/api/sandboxes/{sandbox_id}/history", path(id))), refetchInterval: 5000, retry: false });
  const found = sandbox.data;
  const past = life.data?.sandbox;
  const marks = (life.data?.marks ?? []).filter((mark) => !mark.kind.startsWith("session")).map((mark) => ({ at: new Date(mark.at).getTime(), label: mark.kind }));
  return (
    <div className={table.page}>
      <header className={table.head}>
        <Link to={"/sandboxes" as string} className={table.back} aria-label="Back to all sandboxes"><ChevronLeft size={16} aria-hidden /></Link>
        <h1 className="cut">{found?.name ?? past?.name ?? <code>{id}</code>}</h1>
        {(found || past) && <State name={found?.state ?? past!.state} />}
        <span className="grow" />
        {found && mayWrite(me) && <Acts sandbox={found} />}
      </header>
      <Tabs value={search["tab"] ?? "overview"} onChange={(value) => change({ tab: value === "overview" ? undefined : (value ?? undefined) })} className={table.tabs} keepMounted={false}>
        <Tabs.List className={table.tablist} aria-label="Parts of the sandbox">{TABS.map((tab) => <Tabs.Tab key={tab} value={tab}>{NAMES[tab]}</Tabs.Tab>)}</Tabs.List>
        <Tabs.Panel value="overview" className={table.panel}><Shown query={life}>{(data) => <Overview id={id} sandbox={found ?? null} life={data} />}</Shown></Tabs.Panel>
        <Tabs.Panel value="numbers" className={table.panel}><div style={{ padding: 16 }}><SandboxUsage sandboxId={id} marks={marks} /></div></Tabs.Panel>
        <Tabs.Panel value="log" className={table.panel}><Log id={id} /></Tabs.Panel>
        <Tabs.Panel value="terminal" className={table.panel}>
          {mayWrite(me) ? <RunningSandbox sandboxId={id} none="">{(one) => <Suspense fallback={<Loading />}><Terminals sandboxId={one.id} /></Suspense>}</RunningSandbox> : <Notice icon={Ban} title="Not for this key">A terminal needs a key that may write.</Notice>}
        </Tabs.Panel>
        <Tabs.Panel value="screen" className={table.panel}><RunningSandbox sandboxId={id} none="">{(one) => <Suspense fallback={<Loading />}><Screen sandboxId={one.id} /></Suspense>}</RunningSandbox></Tabs.Panel>
        <Tabs.Panel value="files" className={table.panel}><RunningSandbox sandboxId={id} none="">{(one) => <Files sandboxId={one.id} />}</RunningSandbox></Tabs.Panel>
        <Tabs.Panel value="ports" className={table.panel}><RunningSandbox sandboxId={id} none="">{(one) => <Ports sandboxId={one.id} />}</RunningSandbox></Tabs.Panel>
      </Tabs>
    </div>
  );
}

function Acts({ sandbox }: { sandbox: Sandbox }) {
  const act = useSandboxActs();
  async function extend() {
    try {
      await api.POST("/console/api/sandboxes/{sandbox_id}/timeout", { ...path(sandbox.id), body: { timeout: 3600 } });
    } catch (error) {
      failed("Its time was not changed", error);
    }
  }
  const first: SandboxAct = sandbox.state === "paused" ? "resume" : "pause";
  return (
    <>
      <Button variant="default" onClick={() => void act([sandbox], first)}>{ACT_NAMES[first]}</Button>
      <Menu width={200}>
        <Menu.Target><Button variant="default" px={8} aria-label="More acts"><EllipsisVertical size={14} /></Button></Menu.Target>
        <Menu.Dropdown>
          {mayDo(sandbox, "fork") && <Menu.Item onClick={() => void act([sandbox], "fork")}>Fork it</Menu.Item>}
          {sandbox.state === "running" && <Menu.Item onClick={() => void extend()}>Run for an hour from now</Menu.Item>}
          <Menu.Item color="red" onClick={() => void act([sandbox], "kill")}>End it…</Menu.Item>
        </Menu.Dropdown>
      </Menu>
    </>
  );
}

function Overview({ id, sandbox, life }: { id: string; sandbox: Sandbox | null; life: Schemas["ConsoleLife"] }) {
  const past = life.sandbox;
  const facts: [string, ReactNode][] = [
    ["Id", <code key="id">{sandbox?.id ?? past?.id ?? id}</code>],
    ["Template", sandbox?.template ?? past?.template ?? "–"],
    ["Owner", sandbox?.user_id ?? past?.user_id ?? "nobody"],
    ["Size", sandbox || past ? `${(sandbox ?? past)!.cpu} vCPU, ${(sandbox ?? past)!.memory_mb} MiB` : "–"],
    ["Isolation", sandbox?.isolation ?? "–"],
    ["Ports", sandbox?.public_traffic === false ? "protected" : sandbox?.public_traffic ? "open to everybody" : "–"],
    ["Created", past ? full(past.created_at) : sandbox ? full(sandbox.started_at) : "–"],
    past?.ended_at ? ["Ended", full(past.ended_at)] : ["Time left", sandbox ? <Left key="left" sandbox={sandbox} /> : "–"],
  ];
  const metadata = Object.entries(sandbox?.metadata ?? past?.metadata ?? {});
  return (
    <div className={table.sections} tabIndex={0} role="region" aria-label="Overview">
      {life.why && <section><h2>Why it ended</h2><p className={table.why}>{life.why}</p></section>}
      <section><h2 className="hidden-text">Facts</h2><FactGrid facts={facts} /></section>
      {metadata.length > 0 && <section><h2>Metadata</h2><FactGrid facts={metadata} /></section>}
      <section>
        <h2>What happened</h2>
        {life.marks.length ? (
          <ol className={table.moments}>
            {life.marks.map((mark, n) => (
              <li key={n} data-kind={mark.kind}>
                <time className="faint num" dateTime={mark.at} title={full(mark.at)}>{timeOfDay(new Date(mark.at).getTime())}</time><i aria-hidden />
                <span>{words(mark.kind)}{mark.detail && <span className="dim"> · {DETAILS[mark.detail] ?? mark.detail}</span>}</span>
              </li>
            ))}
          </ol>
        ) : <p className="dim">Its provider does not tell.</p>}
      </section>
      <ForkTree id={sandbox?.id ?? past?.id ?? id} />
      {sandbox && <section><h2>From your own program</h2><CodeBlock label="Python" text={`from e2b import Sandbox\nsandbox = Sandbox.connect("${sandbox.id}")`} /></section>}
    </div>
  );
}

const DETAILS: Record<string, string> = { full: "with its memory", filesystem: "its files only", killed: "by hand", timeout: "its time was over" };
const words = (kind: string) => ({ created: "Created", paused: "Paused", resumed: "Resumed", saved: "Saved, for a snapshot or forks", ended: "Ended" })[kind] ?? kind.replace("session ", "Session: ").replace("terminal.opened", "terminal opened");

function ForkTree({ id }: { id: string }) {
  const tree = useQuery({ queryKey: ["sandbox", id, "forks"], queryFn: () => api.data(api.GET("/console/api/sandboxes/{sandbox_id}/forks", path(id))), refetchInterval: 10_000, retry: false });
  const all = tree.data?.sandboxes ?? [];
  if (all.length < 2) return null;
  return <section><h2>Forks</h2><ul className={table.tree}><Branch node={all[0]!} all={all} id={id} /></ul></section>;
}

function Branch({ node, all, id }: { node: Past; all: readonly Past[]; id: string }) {
  const below = all.filter((one) => one.source === node.id);
  return (
    <li>
      <span><State name={node.state} />{node.id === id ? <b><code>{node.id}</code></b> : <Link to={`/sandboxes/${node.id}` as string}><code>{node.id}</code></Link>}<span className="faint">{node.ended_at ? `ran ${span(new Date(node.ended_at).getTime() - new Date(node.created_at).getTime())}` : <Ago at={node.created_at} suffix=" old" />}</span></span>
      {below.length > 0 && <ul>{below.map((one) => <Branch key={one.id} node={one} all={all} id={id} />)}</ul>}
    </li>
  );
}

function Log({ id }: { id: string }) {
  const log = useQuery({ queryKey: ["sandbox", id, "log"], queryFn: () => api.data(api.GET("/console/api/sandboxes/{sandbox_id}/logs", { params: { path: { sandbox_id: id }, query: { limit: 1000 } } })), refetchInterval: 3000, retry: false });
  return <Shown query={log}>{({ lines }) => (lines.length ? <LogLines lines={lines} label="Log of the sandbox" /> : <Notice icon={ScrollText} title="Nothing logged yet" />)}</Shown>;
}
