// What the agent wrote, as it wrote it.
import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { Download } from "lucide-react";
import { useMemo, useRef } from "react";
import { send } from "../api/client";
import { Shown } from "../ui/states";
import classes from "./view.module.css";

export function RawLog({ id }: { id: string }) {
  const address = `/tasks/${encodeURIComponent(id)}/log`;
  const log = useQuery({ queryKey: ["task", id, "log"], queryFn: async () => (await send(address)).text(), staleTime: 0, refetchInterval: 10_000 });
  return (
    <Shown query={log}>
      {(text) => (
        <div className={classes.place}>
          <Lines text={text} />
          <Button component="a" href={address} download={`task-${id}.log`} variant="default" size="compact-sm" leftSection={<Download size={13} />} className={classes.download}>Download</Button>
        </div>
      )}
    </Shown>
  );
}

function Lines({ text }: { text: string }) {
  const box = useRef<HTMLDivElement>(null);
  const lines = useMemo(() => text.replace(/\n$/, "").split("\n"), [text]);
  const rows = useVirtualizer({ count: lines.length, getScrollElement: () => box.current, estimateSize: () => 18, overscan: 30 });
  if (!text) return <p className={classes.none}>The agent has written nothing yet.</p>;
  return (
    <div ref={box} className={classes.raw} tabIndex={0} role="region" aria-label="Raw log">
      <div style={{ height: rows.getTotalSize(), position: "relative" }}>
        {rows.getVirtualItems().map((row) => (
          <div key={row.key} className={classes.line} style={{ transform: `translateY(${row.start}px)` }}><span className="num">{row.index + 1}</span>{lines[row.index]!.slice(0, 4000)}</div>
        ))}
      </div>
    </div>
  );
}
