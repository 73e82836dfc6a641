// What sandboxes can be started from, with the size of each on the disk.
import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Package } from "lucide-react";
import { api } from "../../api/client";
import { mayWrite, useMe } from "../../app/session";
import { bytes, plural } from "../../ui/format";
import { PageFrame, PageHead } from "../../ui/page";
import { Empty, Shown } from "../../ui/states";
import { State } from "../../ui/table";
import table from "../../ui/table.module.css";
import { Ago } from "../../ui/time";
import { useStart } from "./start";

export default function Templates() {
  const me = useMe();
  const list = useQuery({ queryKey: ["templates"], queryFn: () => api.data(api.GET("/console/api/templates")), refetchInterval: 10_000 });
  const { start, busy } = useStart();
  const total = list.data?.templates.reduce((sum, one) => sum + (one.own_disk_bytes ?? 0), 0) ?? 0;
  return (
    <PageFrame head={<PageHead title="Templates" note={list.data && `${plural(list.data.templates.length, "template")}${total ? `, ${bytes(total)} that only one of them uses` : ""}`} />}>
      <Shown query={list}>
        {({ templates }) =>
          templates.length ? (
            <div className={table.scroll} tabIndex={0} role="region" aria-label="Templates">
              <table className={table.table}>
                <thead><tr><th>Template</th><th>State</th><th data-wide data-right>Size</th><th data-right>On disk</th><th data-wide data-right>Only its own</th><th data-wide data-right>Builds</th><th data-wide data-right>Started</th><th data-right>Last use</th><th><span className="hidden-text">Start</span></th></tr></thead>
                <tbody>
                  {templates.map((one) => (
                    <tr key={one.id}>
                      <td><Link to={`/templates/${one.id}` as string}>{one.names[0] ?? <code>{one.id}</code>}</Link>{one.public && <span className="faint"> public</span>}</td>
                      <td><State name={one.state} /></td>
                      <td data-wide data-right className="dim num">{one.cpu} vCPU · {one.memory_mb} MiB</td>
                      <td data-right className="dim num">{one.disk_bytes === null ? "–" : bytes(one.disk_bytes)}</td>
                      <td data-wide data-right className="dim num">{one.own_disk_bytes === null ? "–" : bytes(one.own_disk_bytes)}</td>
                      <td data-wide data-right className="dim num">{one.builds}</td>
                      <td data-wide data-right className="dim num">{one.spawn_count}</td>
                      <td data-right className="faint">{one.last_used_at ? <Ago at={one.last_used_at} suffix=" ago" /> : "never"}</td>
                      <td data-right>{mayWrite(me) && <Button variant="default" size="compact-sm" loading={busy === one.id} onClick={() => void start(one)}>Start one</Button>}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          ) : (
            <Empty icon={Package} title="No templates" lines="./sandlot template build base">They come with the server, or are built by any E2B SDK.</Empty>
          )
        }
      </Shown>
    </PageFrame>
  );
}
