import { RunningSandbox } from "../../inside/gate";
import { Screen } from "../../inside/screen";
import type { TabProps } from ".";

export default function ScreenTab({ task }: TabProps) {
  return (
    <RunningSandbox sandboxId={task.sandbox_id} none="The desktop of the task's sandbox appears here, if it has one.">
      {(sandbox) => <Screen sandboxId={sandbox.id} />}
    </RunningSandbox>
  );
}
