// What people do to sandboxes, one or many; failures are told with the server's sentence.
import { useQueryClient } from "@tanstack/react-query";
import { useCallback } from "react";
import { api, type Schemas } from "../../api/client";
import { failed } from "../../tasks/acts";
import { confirm } from "../../ui/confirm";
import { plural } from "../../ui/format";

export type Sandbox = Schemas["ConsoleSandbox"];
export type SandboxAct = "pause" | "resume" | "fork" | "kill";
export const ACT_NAMES: Record<SandboxAct, string> = { pause: "Pause", resume: "Resume", fork: "Fork", kill: "End" };
const DONE: Record<SandboxAct, string> = { pause: "paused", resume: "resumed", fork: "forked", kill: "ended" };
export const FORK_S = 3600;

export const mayDo = (sandbox: Sandbox, act: SandboxAct) => act === "kill" || (sandbox.state === "paused") === (act === "resume");

function send(sandbox: Sandbox, act: SandboxAct): Promise<unknown> {
  const params = { params: { path: { sandbox_id: sandbox.id } } };
  switch (act) {
    case "pause": return api.POST("/console/api/sandboxes/{sandbox_id}/pause", params);
    case "resume": return api.POST("/console/api/sandboxes/{sandbox_id}/resume", params);
    case "kill": return api.POST("/console/api/sandboxes/{sandbox_id}/kill", params);
    case "fork": return api.POST("/console/api/sandboxes/{sandbox_id}/fork", { ...params, body: { timeout: FORK_S } });
  }
}

export function useSandboxActs() {
  const queries = useQueryClient();
  return useCallback(
    async (sandboxes: readonly Sandbox[], act: SandboxAct): Promise<boolean> => {
      const list = sandboxes.filter((sandbox) => mayDo(sandbox, act));
      if (act === "kill" && !(await confirm(`End ${plural(list.length, "sandbox", "sandboxes")}?`, "Files and programs in it are lost. Pause it instead to keep them.", "End"))) return false;
      const answers = await Promise.allSettled(list.map((sandbox) => send(sandbox, act)));
      answers.forEach((answer, n) => answer.status === "rejected" && failed(`${list[n]!.name ?? list[n]!.id} was not ${DONE[act]}`, answer.reason));
      await Promise.all([queries.invalidateQueries({ queryKey: ["sandboxes"] }), queries.invalidateQueries({ queryKey: ["sandbox"] })]);
      return true;
    },
    [queries],
  );
}
