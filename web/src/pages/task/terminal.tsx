import { RunningSandbox } from "../../inside/gate";
import { Terminals } from "../../inside/terminal";
import { mayWrite, useMe } from "../../app/session";
import { Notice } from "../../ui/states";
import { Ban } from "lucide-react";
import type { TabProps } from ".";

export default function TerminalTab({ task }: TabProps) {
  const me = useMe();
  if (!mayWrite(me)) return <Notice icon={Ban} title="Not for this key">A terminal needs a key that may write.</Notice>;
  return (
    <RunningSandbox sandboxId={task.sandbox_id} none="A terminal opens here when the task has a sandbox.">
      {(sandbox) => <Terminals sandboxId={sandbox.id} />}
    </RunningSandbox>
  );
}
