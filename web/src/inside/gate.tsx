// What is inside a sandbox can only be seen while it runs: this asks, and says what to do otherwise.
import { Button } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Moon, PackageOpen } from "lucide-react";
import { useState, type ReactNode } from "react";
import { api, ApiError, type Schemas } from "../api/client";
import { mayWrite, useMe } from "../app/session";
import { failed } from "../tasks/acts";
import { Notice, Shown } from "../ui/states";

export type Sandbox = Schemas["ConsoleSandbox"];

export function useSandbox(id: string | null) {
  return useQuery({
    queryKey: ["sandbox", id],
    queryFn: async () => {
      try {
        return await api.data(api.GET("/console/api/sandboxes/{sandbox_id}", { params: { path: { sandbox_id: id! } } }));
      } catch (error) {
        if (error instanceof ApiError && error.isGone) return null;
        throw error;
      }
    },
    enabled: id !== null,
    refetchInterval: 10_000,
  });
}

interface GateProps {
  sandboxId: string | null;
  none: string; // when there has been no sandbox yet
  children: (sandbox: Sandbox) => ReactNode;
}

export function RunningSandbox({ sandboxId, none, children }: GateProps) {
  const me = useMe();
  const queries = useQueryClient();
  const sandbox = useSandbox(sandboxId);
  const [busy, setBusy] = useState(false);
  if (sandboxId === null) return <Notice icon={PackageOpen} title="No sandbox yet">{none}</Notice>;
  async function resume(id: string) {
    setBusy(true);
    try {
      await api.POST("/console/api/sandboxes/{sandbox_id}/resume", { params: { path: { sandbox_id: id } } });
      await queries.invalidateQueries({ queryKey: ["sandbox", sandboxId] });
    } catch (error) {
      failed("It was not resumed", error);
    } finally {
      setBusy(false);
    }
  }
  return (
    <Shown query={sandbox}>
      {(found) =>
        found === null ? (
          <Notice icon={PackageOpen} title="The sandbox has ended">What it left is in the timeline, the changes and the checks.</Notice>
        ) : found.state === "paused" ? (
          <Notice icon={Moon} title="The sandbox is paused" action={mayWrite(me) && <Button loading={busy} onClick={() => void resume(found.id)}>Resume it</Button>}>Its files and programs are kept as they were.</Notice>
        ) : (
          children(found)
        )
      }
    </Shown>
  );
}
