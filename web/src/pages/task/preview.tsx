import { RunningSandbox } from "../../inside/gate";
import { Ports } from "../../inside/ports";
import type { TabProps } from ".";

export default function PreviewTab({ task }: TabProps) {
  return (
    <RunningSandbox sandboxId={task.sandbox_id} none="Servers that the agent starts appear here.">
      {(sandbox) => <Ports sandboxId={sandbox.id} />}
    </RunningSandbox>
  );
}
