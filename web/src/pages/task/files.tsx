import { Files } from "../../inside/files";
import { RunningSandbox } from "../../inside/gate";
import type { TabProps } from ".";

export default function FilesTab({ task }: TabProps) {
  return (
    <RunningSandbox sandboxId={task.sandbox_id} none="Files appear here when the task has a sandbox.">
      {(sandbox) => <Files sandboxId={sandbox.id} />}
    </RunningSandbox>
  );
}
