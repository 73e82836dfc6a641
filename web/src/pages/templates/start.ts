// Starts a sandbox from a template as a session of the caller, and goes to its page.
import { useState } from "react";
import { api, type Schemas } from "../../api/client";
import { useGo } from "../../app/navigation";
import { useMe } from "../../app/session";
import { failed } from "../../tasks/acts";

export function useStart() {
  const [busy, setBusy] = useState<string | null>(null);
  const go = useGo();
  const me = useMe();
  async function start(template: Schemas["ConsoleTemplate"]) {
    setBusy(template.id);
    try {
      const name = `${template.names[0] ?? template.id}-${new Date().toISOString().slice(11, 19).replaceAll(":", "")}`;
      const body = { user_id: me.user_id ?? "admin", session_id: name.replaceAll("/", "-"), template_id: template.names[0] ?? template.id, envs: {}, capabilities: [], metadata: {}, wait: 60 };
      const made = await api.data(api.POST("/sandboxes/create", { body }));
      go(made.started_at ? `/sandboxes/${made.sandbox_id}` : "/sessions");
    } catch (error) {
      failed("No sandbox was started", error);
    } finally {
      setBusy(null);
    }
  }
  return { start, busy };
}
