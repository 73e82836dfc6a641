// One template: its builds, and the log of each as it is written.
import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { ChevronLeft, ScrollText } from "lucide-react";
import { api, ApiError } from "../../api/client";
import { useParam, useSearchState } from "../../app/navigation";
import { mayWrite, useMe } from "../../app/session";
import { CodeBlock } from "../../ui/copy";
import { bytes } from "../../ui/format";
import { Notice, Shown } from "../../ui/states";
import { FactGrid, LogLines, State, type LogLine } from "../../ui/table";
import table from "../../ui/table.module.css";
import { full, took } from "../../ui/time";
import { useStart } from "../templates/start";

export default function TemplatePage() {
  const id = useParam("id");
  const me = useMe();
  const [search, change] = useSearchState();
  const { start, busy } = useStart();
  const detail = useQuery({ queryKey: ["template", id], queryFn: () => api.data(api.GET("/console/api/templates/{template_id}", { params: { path: { template_id: id } } })), refetchInterval: 3000 });
  return (
    <div className={table.page}>
      <header className={table.head}>
        <Link to={"/templates" as string} className={table.back} aria-label="Back to all templates"><ChevronLeft size={16} aria-hidden /></Link>
        <h1 className="cut">{detail.data?.template.names[0] ?? id}</h1>
        {detail.data && <State name={detail.data.template.state} />}
        <span className="grow" />
        {detail.data && mayWrite(me) && <Button loading={busy !== null} onClick={() => void start(detail.data.template)}>Start one</Button>}
      </header>
      <div className={table.panel}>
        <Shown query={detail}>
          {({ template, builds }) => {
            const shown = search["build"] ?? builds[0]?.id;
            return (
              <div className={table.sections}>
                <section>
                  <h2 className="hidden-text">Facts</h2>
                  <FactGrid facts={[["Id", <code key="id">{template.id}</code>], ["Names", template.names.join(", ") || "–"], ["Size", `${template.cpu} vCPU, ${template.memory_mb} MiB`], ["On disk", template.disk_bytes === null ? "–" : bytes(template.disk_bytes)], ["Deleting it would free", template.own_disk_bytes === null ? "–" : bytes(template.own_disk_bytes)], ["Sandboxes started", template.spawn_count], ["Created", full(template.created_at)]]} />
                </section>
                <section>
                  <h2>Builds</h2>
                  <div className={table.box}>
                    <table className={table.table}>
                      <thead><tr><th>Build</th><th>State</th><th data-right>Took</th><th data-right>Begun</th></tr></thead>
                      <tbody>
                        {builds.map((build) => (
                          <tr key={build.id} data-selected={build.id === shown || undefined}>
                            <td><Button variant="transparent" size="compact-sm" p={0} onClick={() => change({ build: build.id })}><code>{build.id.slice(0, 13)}</code></Button></td>
                            <td><State name={build.state} /></td>
                            <td data-right className="dim num">{build.finished_at ? took(new Date(build.finished_at).getTime() - new Date(build.created_at).getTime()) : "–"}</td>
                            <td data-right className="dim">{full(build.created_at)}</td>
                          </tr>
                        ))}
                      </tbody>
                    </table>
                  </div>
                </section>
                {shown && <section><h2>Log of build <code>{shown.slice(0, 13)}</code></h2><div className={table.box}><BuildLog template={template.id} build={shown} isOver={builds.find((one) => one.id === shown)?.finished_at != null} /></div></section>}
                <section><h2>From your own program</h2><CodeBlock label="Python" text={`from e2b import Sandbox\nsandbox = Sandbox.create("${template.names[0] ?? template.id}")`} /></section>
              </div>
            );
          }}
        </Shown>
      </div>
    </div>
  );
}

const PAGE = 100;

/** All lines, page by page; while the build goes on, again every second. */
async function readLog(template: string, build: string): Promise<LogLine[]> {
  const lines: LogLine[] = [];
  const seen = new Set<string>();
  for (let since = 0; lines.length < 5000; ) {
    const page = await api.data(api.GET("/console/api/templates/{template_id}/builds/{build_id}/logs", { params: { path: { template_id: template, build_id: build }, query: { since, limit: PAGE } } }));
    const fresh = page.lines.filter((line) => !seen.has(line.at + line.message));
    fresh.forEach((line) => seen.add(line.at + line.message));
    lines.push(...fresh);
    if (page.lines.length < PAGE || !fresh.length) break;
    since = new Date(page.lines.at(-1)!.at).getTime();
  }
  return lines;
}

/** A template that came with the server has a build without a log. */
function none(error: unknown): LogLine[] {
  if (error instanceof ApiError && error.isGone) return [];
  throw error;
}

function BuildLog({ template, build, isOver }: { template: string; build: string; isOver: boolean }) {
  const log = useQuery({ queryKey: ["template", template, "build", build], queryFn: () => readLog(template, build).catch(none), refetchInterval: isOver ? false : 1000 });
  return <Shown query={log}>{(lines) => (lines.length ? <LogLines lines={lines} label="Log of the build" /> : <Notice icon={ScrollText} title="This build has no log">It came with the server, or its log is forgotten.</Notice>)}</Shown>;
}
