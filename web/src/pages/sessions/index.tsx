// Sessions: a user's sandbox through all its pauses; and who waits for one, and why.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Layers } from "lucide-react";
import { api } from "../../api/client";
import { plural } from "../../ui/format";
import { PageFrame, PageHead } from "../../ui/page";
import { Empty, Shown } from "../../ui/states";
import { State } from "../../ui/table";
import table from "../../ui/table.module.css";
import { Ago } from "../../ui/time";

export default function Sessions() {
  const queue = useQuery({ queryKey: ["queue"], queryFn: () => api.data(api.GET("/console/api/queue")), refetchInterval: 5000 });
  const list = useQuery({ queryKey: ["sessions"], queryFn: () => api.data(api.GET("/sandboxes/list", { params: { query: { limit: 100 } } })), refetchInterval: 5000 });
  const waiting = queue.data?.waiting ?? [];
  return (
    <PageFrame head={<PageHead title="Sessions" note={queue.data && `${queue.data.running} of ${queue.data.limit} run, ${waiting.length} wait`} />}>
      <div className={table.sections} style={{ maxWidth: "none" }}>
        {waiting.length > 0 && (
          <section>
            <h2>Waiting for a sandbox</h2>
            <div className={table.box}>
              <table className={table.table}>
                <thead><tr><th>Place</th><th>Session</th><th>Owner</th><th>Why it waits</th><th data-right>Since</th></tr></thead>
                <tbody>{waiting.map((one) => <tr key={one.session_id}><td className="num">{one.position}</td><td>{one.name}</td><td className="dim">{one.user_id}</td><td className="dim">{one.reason ?? "It starts next"}</td><td data-right className="faint"><Ago at={one.since} /></td></tr>)}</tbody>
              </table>
            </div>
          </section>
        )}
        <Shown query={list}>
          {({ sandboxes }) =>
            sandboxes.length ? (
              <section>
                <h2>{plural(sandboxes.length, "session")}</h2>
                <div className={table.box}>
                  <table className={table.table}>
                    <thead><tr><th>Session</th><th>State</th><th>Owner</th><th data-wide>Template</th><th data-wide>Provider</th><th data-wide>Problem</th><th data-right>Last use</th></tr></thead>
                    <tbody>
                      {sandboxes.map((one) => (
                        <tr key={one.sandbox_id}>
                          <td>{one.started_at ? <Link to={`/sandboxes/${one.sandbox_id}` as string}>{one.session_id}</Link> : one.session_id}</td>
                          <td><State name={one.status} /></td>
                          <td className="dim">{one.user_id}</td>
                          <td data-wide className="dim">{one.template_id ?? one.agent_type ?? "default"}</td>
                          <td data-wide className="dim">{one.provider}</td>
                          <td data-wide className="dim">{one.problem ?? ""}</td>
                          <td data-right className="faint"><Ago at={one.last_used_at} suffix=" ago" /></td>
                        </tr>
                      ))}
                    </tbody>
                  </table>
                </div>
              </section>
            ) : (
              <Empty icon={Layers} title="No sessions" lines={'curl -X POST "$SANDLOT_URL/sandboxes/create" -H "X-API-KEY: $KEY" \\\n  -d \'{"session_id": "work"}\''}>A session keeps one user’s sandbox: it is paused when idle, and resumed by its next use.</Empty>
            )
          }
        </Shown>
      </div>
    </PageFrame>
  );
}
