// The Changes tab: the task's diff, and a review that goes back to the agent as one message.
import { Button, Textarea } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { FileDiff as FileDiffIcon } from "lucide-react";
import { useState } from "react";
import { api, ApiError, send, type Schemas, type Task } from "../../api/client";
import { mayWrite, useMe } from "../../app/session";
import { DiffView, type Comment } from "../../diff/view";
import { failed } from "../../tasks/acts";
import { keep } from "../../tasks/store";
import { plural } from "../../ui/format";
import { Empty, Shown } from "../../ui/states";
import type { TabProps } from ".";
import classes from "./changes.module.css";

type Diff = Schemas["PullDiffInfo"];

async function readDiff(task: Task): Promise<Diff | null> {
  try {
    return (await (await send(`/tasks/${task.id}/diff`)).json()) as Diff;
  } catch (error) {
    if (!(error instanceof ApiError && (error.isGone || error.status === 405))) throw error;
  }
  if (!task.pull_request) return null;
  return api.data(api.GET("/repositories/{name}/pulls/{number}/diff", { params: { path: { name: task.repository, number: task.pull_request.number } } }));
}

export default function Changes({ task }: TabProps) {
  const me = useMe();
  const diff = useQuery({
    queryKey: ["task", task.id, "diff", task.changes, task.pull_request?.number],
    queryFn: () => readDiff(task),
    placeholderData: (old) => old,
    refetchInterval: task.state === "working" ? 15_000 : false,
  });
  const draft = `sandlot-review-${task.id}`;
  const [comments, setComments] = useState<readonly Comment[]>(() => JSON.parse(sessionStorage.getItem(draft) ?? "[]") as Comment[]);
  const [text, setText] = useState("");
  const queries = useQueryClient();
  const [busy, setBusy] = useState(false);
  function change(next: readonly Comment[]) {
    setComments(next);
    sessionStorage.setItem(draft, JSON.stringify(next));
  }
  async function submit() {
    setBusy(true);
    try {
      const body = { text: text.trim() || null, comments: comments.map((comment) => ({ ...comment })) };
      keep(queries, await api.data(api.POST("/tasks/{id}/review", { params: { path: { id: task.id } }, body })));
      change([]);
      setText("");
      void queries.invalidateQueries({ queryKey: ["task", task.id] });
    } catch (error) {
      failed("The review was not sent", error);
    } finally {
      setBusy(false);
    }
  }
  const footer = mayWrite(me) && (comments.length > 0 || text !== "") && (
    <div className={classes.review}>
      <Textarea autosize minRows={1} maxRows={6} className="grow" aria-label="Summary of the review" placeholder="A word about all of it (optional)" value={text} onChange={(event) => setText(event.currentTarget.value)} />
      <Button loading={busy} onClick={() => void submit()}>Send {plural(comments.length, "comment")} to the agent</Button>
    </div>
  );
  return (
    <Shown query={diff}>
      {(found) =>
        found && found.files.length ? (
          <DiffView files={found.files} isCut={found.truncated} comments={comments} onComments={mayWrite(me) ? change : undefined} footer={footer} />
        ) : (
          <Empty icon={FileDiffIcon} title="No changes yet">{task.state === "todo" || task.state === "queued" ? "They appear here when the agent has begun." : "The agent has not changed anything that was committed."}</Empty>
        )
      }
    </Shown>
  );
}
