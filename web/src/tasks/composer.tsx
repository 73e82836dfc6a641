// Says something to a task's agent: after its turn, at once, or to take a task up again that rests.
import { ActionIcon, Button, Menu, Textarea } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { ChevronDown, CornerDownLeft } from "lucide-react";
import { useState, type KeyboardEvent, type Ref } from "react";
import { api, type Task } from "../api/client";
import { mayWrite, useMe } from "../app/session";
import { useIsOld } from "../live/provider";
import { failed } from "./acts";
import { keep } from "./store";
import classes from "./composer.module.css";

type Mode = "queue" | "interrupt";

export function useSay(task: Task) {
  const queries = useQueryClient();
  return async (text: string, mode: Mode = "queue"): Promise<boolean> => {
    try {
      keep(queries, await api.data(api.POST("/tasks/{id}/messages", { params: { path: { id: task.id } }, body: { text, mode } })));
      void queries.invalidateQueries({ queryKey: ["task", task.id] });
      return true;
    } catch (error) {
      failed("The message was not sent", error);
      return false;
    }
  };
}

export function Composer({ task, field, autoFocus = false }: { task: Task; field?: Ref<HTMLTextAreaElement>; autoFocus?: boolean }) {
  const me = useMe();
  const say = useSay(task);
  const isOld = useIsOld();
  const draft = `sandlot-draft-${task.id}`;
  const [text, setText] = useState(() => sessionStorage.getItem(draft) ?? "");
  const [busy, setBusy] = useState(false);
  if (!mayWrite(me)) return null;
  const isWorking = task.state === "working" || task.state === "queued";
  function change(value: string) {
    setText(value);
    if (value) sessionStorage.setItem(draft, value);
    else sessionStorage.removeItem(draft);
  }
  async function send(mode: Mode) {
    if (!text.trim() || busy || isOld) return;
    setBusy(true);
    if (await say(text, mode)) change("");
    setBusy(false);
  }
  function press(event: KeyboardEvent) {
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    void send(event.metaKey || event.ctrlKey ? "interrupt" : "queue");
  }
  const hint = task.state === "needs_you" ? "Answer, and the agent goes on" : isWorking ? "Tell the agent something for its next turn" : "Ask for more: the agent takes it up again";
  return (
    <div className={classes.composer}>
      <Textarea ref={field} autosize minRows={1} maxRows={10} placeholder={hint} aria-label="Message to the agent" value={text} onChange={(event) => change(event.currentTarget.value)} onKeyDown={press} variant="unstyled" className={classes.field} autoFocus={autoFocus} />
      <div className={classes.buttons}>
        <Button size="xs" loading={busy} disabled={!text.trim() || isOld} onClick={() => void send("queue")} rightSection={<CornerDownLeft size={13} aria-hidden />}>{isWorking ? "Queue" : "Send"}</Button>
        {isWorking && (
          <Menu>
            <Menu.Target><ActionIcon variant="default" size={30} aria-label="Other ways to send" disabled={!text.trim()}><ChevronDown size={14} /></ActionIcon></Menu.Target>
            <Menu.Dropdown>
              <Menu.Item onClick={() => void send("queue")}>After this turn</Menu.Item>
              <Menu.Item onClick={() => void send("interrupt")}>Interrupt, and say it now</Menu.Item>
            </Menu.Dropdown>
          </Menu>
        )}
      </div>
    </div>
  );
}
