// The acts that matter most in a task's state as buttons; all others in a menu.
import { ActionIcon, Button, Menu, Tooltip } from "@mantine/core";
import { Check, Ellipsis, GitFork, Pause, Play, RotateCcw, Square } from "lucide-react";
import { mayWrite, useMe } from "../app/session";
import type { Task } from "../api/client";
import { useIsOld } from "../live/provider";
import { useFork } from "./acts";
import type { Act } from "./lanes";
import { TaskMenuItems, useAsked } from "./menu";

const FIRST: Record<Task["state"], readonly Act[]> = {
  todo: ["start"], queued: ["stop"], working: ["pause", "stop"], needs_you: ["retry", "done"], review: ["done"], done: [], failed: ["retry"], cancelled: ["retry"],
};
const LABELS: Record<Act, [string, typeof Play]> = {
  start: ["Start", Play], stop: ["Stop", Square], pause: ["Pause", Pause], retry: ["Go on", RotateCcw], done: ["Done", Check], shelve: ["To do", Square],
};

export function HeaderActs({ task, onDeleted, isPage }: { task: Task; onDeleted?: () => void; isPage?: boolean }) {
  const me = useMe();
  const { run } = useAsked();
  const isOld = useIsOld();
  const fork = useFork();
  return (
    <div className="row" style={{ gap: 6, flex: "none" }}>
      {mayWrite(me) && FIRST[task.state].map((act) => {
        const [label, Icon] = LABELS[act];
        return <Button key={act} variant={act === "start" ? "filled" : "default"} leftSection={<Icon size={13} aria-hidden />} disabled={isOld} onClick={() => void run([task], act)}>{label}</Button>;
      })}
      {isPage && task.sandbox_id && mayWrite(me) && (
        <Tooltip label="Fork its sandbox: a second one with the same state">
          <Button variant="default" visibleFrom="sm" leftSection={<GitFork size={13} aria-hidden />} disabled={isOld} onClick={() => void fork(task)}>Fork</Button>
        </Tooltip>
      )}
      <Menu width={200}>
        <Menu.Target><ActionIcon variant="default" size={30} aria-label="More to do with this task"><Ellipsis size={15} /></ActionIcon></Menu.Target>
        <Menu.Dropdown><TaskMenuItems task={task} onDeleted={onDeleted} isPage={isPage} /></Menu.Dropdown>
      </Menu>
    </div>
  );
}
