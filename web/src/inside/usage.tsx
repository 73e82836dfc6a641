// What a sandbox uses over time: CPU, memory, disk.
import { useQuery } from "@tanstack/react-query";
import { ChartLine } from "lucide-react";
import { useMemo } from "react";
import { api } from "../api/client";
import { Chart, type Mark } from "../ui/chart";
import { bytes } from "../ui/format";
import { Empty, Shown } from "../ui/states";
import classes from "./usage.module.css";

export function SandboxUsage({ sandboxId, marks }: { sandboxId: string; marks?: readonly Mark[] }) {
  const usage = useQuery({
    queryKey: ["usage", sandboxId],
    queryFn: () => api.data(api.GET("/console/api/sandboxes/{sandbox_id}/metrics", { params: { path: { sandbox_id: sandboxId } } })),
    refetchInterval: 5000,
    retry: false,
  });
  const points = usage.data?.points;
  const series = useMemo(() => {
    const of = (pick: (point: NonNullable<typeof points>[number]) => number) => (points ?? []).map((point) => ({ at: new Date(point.at).getTime(), value: pick(point) }));
    return { cpu: of((point) => point.cpu_percent), memory: of((point) => point.memory_bytes), disk: of((point) => point.disk_bytes) };
  }, [points]);
  return (
    <Shown query={usage}>
      {({ points: list }) => {
        const last = list.at(-1);
        if (!last) return <Empty icon={ChartLine} title="No numbers yet">They are taken every few seconds while the sandbox runs.</Empty>;
        return (
          <div className={classes.charts}>
            <Chart title={`CPU, of ${last.cpu_count} ${last.cpu_count === 1 ? "core" : "cores"}`} points={series.cpu} max={Math.max(100, ...series.cpu.map((point) => point.value))} format={(value) => `${value.toFixed(0)} %`} marks={marks} />
            <Chart title={`Memory, of ${bytes(last.memory_total)}`} points={series.memory} max={last.memory_total} format={bytes} marks={marks} />
            <Chart title={`Disk, of ${bytes(last.disk_total)}`} points={series.disk} max={last.disk_total} format={bytes} marks={marks} />
          </div>
        );
      }}
    </Shown>
  );
}
