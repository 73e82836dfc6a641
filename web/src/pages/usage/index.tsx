// What was used: hours, starts, tokens and cost, by day, user, repository or agent; as a table to download.
import { Button, SegmentedControl, Select } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { ChartColumn, Download } from "lucide-react";
import { api, type Schemas } from "../../api/client";
import { useSearchState } from "../../app/navigation";
import { compact, dollars } from "../../ui/format";
import { PageFrame, PageHead } from "../../ui/page";
import { Empty, Shown } from "../../ui/states";
import { FactGrid } from "../../ui/table";
import table from "../../ui/table.module.css";

type Row = Schemas["ConsoleUsageRow"];
type Field = "vcpu_hours" | "memory_gib_hours" | "starts" | "tokens_output" | "cost_usd";
const hours = (value: number) => (value && value < 0.1 ? value.toFixed(3) : value.toFixed(2));
const FIELDS: { value: Field; label: string; show: (value: number) => string }[] = [
  { value: "vcpu_hours", label: "vCPU hours", show: hours },
  { value: "memory_gib_hours", label: "GiB hours", show: hours },
  { value: "starts", label: "Starts", show: (value) => String(value) },
  { value: "tokens_output", label: "Tokens out", show: compact },
  { value: "cost_usd", label: "Cost", show: dollars },
];
const BY = { user_id: "User", repository: "Repository", agent: "Agent", day: "Day" } as const;
type By = keyof typeof BY;
const day = (back: number) => new Date(Date.now() - back * 86_400_000).toISOString().slice(0, 10);

export default function Usage() {
  const [search, change] = useSearchState();
  const days = Number(search["days"] ?? 30);
  const by = (search["by"] ?? "user_id") as By;
  const field = FIELDS.find((one) => one.value === search["of"]) ?? FIELDS[0]!;
  const range = { start: day(days - 1), end: day(0) };
  const perDay = useQuery({ queryKey: ["consumption", "day", range], queryFn: () => api.data(api.GET("/console/api/usage", { params: { query: { ...range, by: ["day"] } } })), refetchInterval: 30_000 });
  const parts = useQuery({ queryKey: ["consumption", by, range], queryFn: () => api.data(api.GET("/console/api/usage", { params: { query: { ...range, by: [by] } } })), refetchInterval: 30_000, placeholderData: (old) => old });
  return (
    <PageFrame
      head={
        <PageHead title="Usage">
          <SegmentedControl aria-label="Days" value={String(days)} onChange={(value) => change({ days: value === "30" ? undefined : value })} data={[{ value: "7", label: "7 days" }, { value: "30", label: "30 days" }, { value: "90", label: "90 days" }]} />
          <Button component="a" variant="default" href={`/console/api/usage.csv?${new URLSearchParams(range)}`} leftSection={<Download size={14} />}>CSV</Button>
        </PageHead>
      }
    >
      <Shown query={perDay}>
        {({ rows, total }) =>
          rows.length ? (
            <div className={table.sections} tabIndex={0} role="region" aria-label="Usage">
              <section><h2 className="hidden-text">In all</h2><FactGrid big facts={[["vCPU hours", hours(total.vcpu_hours)], ["GiB hours", hours(total.memory_gib_hours)], ["Sandboxes started", total.starts], ["Tasks", total.tasks], ["Tokens in", compact(total.tokens_input)], ["Tokens out", compact(total.tokens_output)], ["Cost of models", dollars(total.cost_usd)]]} /></section>
              <section>
                <div className="row"><h2 className="grow">{field.label} by day</h2><Select aria-label="What to show" w={140} allowDeselect={false} value={field.value} onChange={(value) => change({ of: value ?? undefined })} data={FIELDS.map(({ value, label }) => ({ value, label }))} /></div>
                <Bars rows={rows} days={days} field={field} />
              </section>
              <section>
                <div className="row"><h2 className="grow">By {BY[by].toLowerCase()}</h2><SegmentedControl aria-label="Add up by" value={by} onChange={(value) => change({ by: value === "user_id" ? undefined : value })} data={Object.entries(BY).map(([value, label]) => ({ value, label }))} /></div>
                <div className={table.box}><Shown query={parts}>{(found) => <Table rows={found.rows} by={by} />}</Shown></div>
              </section>
            </div>
          ) : (
            <Empty icon={ChartColumn} title="Nothing was used yet">Hours of sandboxes are counted while they run; tokens and cost come with tasks.</Empty>
          )
        }
      </Shown>
    </PageFrame>
  );
}

const brief = (date: string) => new Date(`${date}T12:00:00Z`).toLocaleDateString([], { month: "short", day: "numeric" });

function Bars({ rows, days, field }: { rows: readonly Row[]; days: number; field: (typeof FIELDS)[number] }) {
  const byDay = new Map(rows.map((row) => [row.day, row[field.value]]));
  const all = Array.from({ length: days }, (_, n) => day(days - 1 - n));
  const top = Math.max(...all.map((one) => byDay.get(one) ?? 0)) || 1;
  return (
    <div className={table.box}>
      <div className={table.bars} role="img" aria-label={`${field.label} by day, at most ${field.show(top)}`}>
        {all.map((one) => { const value = byDay.get(one) ?? 0; return <div key={one} title={`${one}: ${field.show(value)}`} style={{ height: `${Math.max(value ? 3 : 1, (value / top) * 100)}%`, opacity: value ? undefined : 0.2 }} />; })}
      </div>
      <div className={`${table.axis} num`}><span>{brief(all[0]!)}</span><span>at most {field.show(top)}</span><span>{brief(all.at(-1)!)}</span></div>
    </div>
  );
}

function Table({ rows, by }: { rows: readonly Row[]; by: By }) {
  const top = Math.max(...rows.map((row) => row.vcpu_hours)) || 1;
  const ordered = by === "day" ? rows.toReversed() : rows.toSorted((a, b) => b.vcpu_hours - a.vcpu_hours || b.cost_usd - a.cost_usd);
  return (
    <table className={table.table}>
      <thead><tr><th>{BY[by]}</th><th data-right>vCPU hours</th><th data-right data-wide>GiB hours</th><th data-right>Starts</th><th data-right data-wide>Tasks</th><th data-right data-wide>Tokens in</th><th data-right data-wide>Tokens out</th><th data-right>Cost</th></tr></thead>
      <tbody>
        {ordered.map((row, n) => (
          <tr key={n}>
            <td>{row[by] ?? <span className="faint">{by === "user_id" ? "no session" : "none"}</span>}</td>
            <td data-right className="num">{hours(row.vcpu_hours)}<span className={table.meter}><b style={{ width: `${(row.vcpu_hours / top) * 100}%` }} /></span></td>
            <td data-right data-wide className="num">{hours(row.memory_gib_hours)}</td><td data-right className="num">{row.starts}</td><td data-right data-wide className="num">{row.tasks}</td>
            <td data-right data-wide className="num">{compact(row.tokens_input)}</td><td data-right data-wide className="num">{compact(row.tokens_output)}</td><td data-right className="num">{dollars(row.cost_usd)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
