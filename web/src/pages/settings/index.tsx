// How this platform is set up, and what the doctor finds on its host, with what to do about it.
import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { CircleCheck, CircleX, TriangleAlert } from "lucide-react";
import { api, type Schemas } from "../../api/client";
import { CodeBlock } from "../../ui/copy";
import { plural } from "../../ui/format";
import { PageFrame, PageHead } from "../../ui/page";
import { Loading, Shown } from "../../ui/states";
import { FactGrid, State } from "../../ui/table";
import table from "../../ui/table.module.css";
import { span } from "../../ui/time";

const ICONS: Record<string, typeof CircleCheck> = { ok: CircleCheck, warn: TriangleAlert, fail: CircleX };
const ORDER = ["fail", "warn", "ok"];
const seconds = (value: number) => (value ? span(value * 1000) : "none");

export default function SettingsPage() {
  const settings = useQuery({ queryKey: ["settings"], queryFn: () => api.data(api.GET("/console/api/settings")), retry: false });
  const doctor = useQuery({ queryKey: ["doctor"], queryFn: () => api.data(api.GET("/console/api/doctor")), retry: false, staleTime: 60_000 });
  return (
    <PageFrame head={<PageHead title="Settings" note={settings.data && `Sandlot ${settings.data.version}`} />}>
      <Shown query={settings}>
        {({ providers, limits, policy, webhooks }) => (
          <div className={table.sections} tabIndex={0} role="region" aria-label="Settings">
            <section>
              <div className="row"><h2 className="grow">Health of the host</h2><Button variant="default" size="compact-sm" loading={doctor.isFetching} onClick={() => void doctor.refetch()}>Check again</Button></div>
              <div className={table.box}>
                <Shown query={doctor} loading={<Loading lines={4} />}>
                  {({ findings }) => (
                    <>
                      {findings.filter((one) => one.state !== "ok").toSorted((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state)).map((one) => <FindingRow key={one.name} finding={one} />)}
                      <Fine findings={findings.filter((one) => one.state === "ok")} />
                      {!findings.length && <p className="dim" style={{ padding: 14 }}>This platform has no host of its own to check.</p>}
                    </>
                  )}
                </Shown>
              </div>
            </section>
            <section>
              <h2>Providers</h2>
              <div className={table.box}>
                <table className={table.table}>
                  <thead><tr><th>Name</th><th>Kind</th><th>State</th></tr></thead>
                  <tbody>{providers.map((one) => <tr key={one.name}><td>{one.name}{one.is_default && <span className="faint"> default</span>}</td><td className="dim">{one.kind}</td><td>{one.problem ?? <State name="ready" />}</td></tr>)}</tbody>
                </table>
              </div>
            </section>
            <section><h2>Limits</h2><FactGrid facts={[["Sandboxes at once", limits.running], ["For each user", limits.running_per_user || "no limit"], ["Sessions for each user", limits.sessions_per_user || "no limit"], ["Length of the queue", limits.queue_length], ["Longest wait", seconds(limits.queue_timeout)]]} /></section>
            <section><h2>Sessions</h2><FactGrid facts={[["Paused when idle for", seconds(policy.idle_pause)], ["Oldest", seconds(policy.max_age)], ["At the end of their time", policy.on_timeout], ["Events are kept for", seconds(policy.keep_events)], ["Ended ones are kept for", seconds(policy.keep_ended)]]} /></section>
            <section>
              <h2>Webhooks</h2>
              {webhooks.length ? <div className={table.box}><table className={table.table}><thead><tr><th>Name</th><th>Host</th><th data-wide>Events</th><th data-right>Waiting</th><th data-right>Given up</th><th data-wide>Last problem</th></tr></thead><tbody>{webhooks.map((one) => <tr key={one.name}><td>{one.name}</td><td className="dim">{one.host}</td><td data-wide className="dim">{one.types?.join(", ") ?? "all"}</td><td data-right className="num">{one.waiting}</td><td data-right className="num" style={one.given_up ? { color: "var(--red)" } : undefined}>{one.given_up}</td><td data-wide className="dim" title={one.problem ?? undefined}>{one.problem ?? ""}</td></tr>)}</tbody></table></div> : <p className="dim">None. They are set up in <code>sandlot.toml</code>.</p>}
            </section>
          </div>
        )}
      </Shown>
    </PageFrame>
  );
}

type Finding = Schemas["ConsoleFinding"];

function FindingRow({ finding }: { finding: Finding }) {
  const Icon = ICONS[finding.state] ?? CircleCheck;
  return (
    <div className={table.finding} data-state={finding.state}>
      <Icon size={15} aria-label={finding.state} style={{ marginTop: 2 }} />
      <div style={{ minWidth: 0 }}>
        <b style={{ fontWeight: 500 }}>{finding.name}</b> <span className="dim">{finding.detail}</span>
        {finding.fix && finding.state !== "ok" && <div style={{ marginTop: 6 }}><CodeBlock label="What to do" text={finding.fix} /></div>}
      </div>
    </div>
  );
}

function Fine({ findings }: { findings: readonly Finding[] }) {
  if (!findings.length) return null;
  return (
    <details className={table.fine}>
      <summary className={table.finding} data-state="ok"><CircleCheck size={15} aria-hidden style={{ marginTop: 2 }} /><span><b style={{ fontWeight: 500 }}>{plural(findings.length, "check")} passed</b> <span className="dim">{findings.slice(0, 5).map((one) => one.name).join(", ")}…</span></span></summary>
      {findings.map((one) => <FindingRow key={one.name} finding={one} />)}
    </details>
  );
}
