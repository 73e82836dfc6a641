// A pull request: what it says, its comments, its diff; comment, merge, close.
import { Button, Tabs, Textarea } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { ChevronLeft, FileDiff } from "lucide-react";
import { useState } from "react";
import { api, type Schemas } from "../../api/client";
import { useParam, useSearchState } from "../../app/navigation";
import { mayWrite, useMe } from "../../app/session";
import { DiffView, type Comment } from "../../diff/view";
import { failed } from "../../tasks/acts";
import { Markdown } from "../../timeline/markdown";
import { confirm } from "../../ui/confirm";
import { plural } from "../../ui/format";
import { Empty, Shown } from "../../ui/states";
import { State } from "../../ui/table";
import table from "../../ui/table.module.css";
import { Ago } from "../../ui/time";
import { PullState } from "./state";

export default function PullPage() {
  const name = decodeURIComponent(useParam("name"));
  const number = Number(useParam("number"));
  const params = { params: { path: { name, number } } };
  const [search, change] = useSearchState();
  const me = useMe();
  const queries = useQueryClient();
  const key = ["repository", name, "pull", number];
  const pull = useQuery({ queryKey: key, queryFn: () => api.data(api.GET("/repositories/{name}/pulls/{number}", params)), refetchInterval: 10_000 });
  const diff = useQuery({ queryKey: [...key, "diff", pull.data?.head_sha], queryFn: () => api.data(api.GET("/repositories/{name}/pulls/{number}/diff", params)), enabled: pull.isSuccess });
  const [comments, setComments] = useState<readonly Comment[]>([]);
  const [text, setText] = useState("");
  const [busy, setBusy] = useState<string | null>(null);
  async function run(what: string, act: () => Promise<unknown>) {
    setBusy(what);
    try {
      await act();
      await queries.invalidateQueries({ queryKey: ["repository", name] });
      return true;
    } catch (error) {
      failed(`${what} did not work`, error);
      return false;
    } finally {
      setBusy(null);
    }
  }
  async function merge(found: Schemas["PullRequestInfo"]) {
    if (!(await confirm(`Merge #${number} into ${found.base}?`, `${found.head} becomes part of ${found.base}.`, "Merge", false))) return;
    await run("Merge", () => api.POST("/repositories/{name}/pulls/{number}/merge", { ...params, body: { sha: found.head_sha } }));
  }
  async function say() {
    const list = [...comments.map((one) => ({ body: one.text, path: one.path, line: one.line })), ...(text.trim() ? [{ body: text.trim(), path: null, line: null }] : [])];
    const done = await run("Comment", async () => {
      for (const body of list) await api.POST("/repositories/{name}/pulls/{number}/comments", { ...params, body });
    });
    if (done) {
      setComments([]);
      setText("");
    }
  }
  const open = pull.data?.state === "open";
  const footer = comments.length > 0 && <div className={table.bulk}><span className="grow">{plural(comments.length, "comment")}</span><Button loading={busy === "Comment"} onClick={() => void say()}>Send</Button></div>;
  return (
    <div className={table.page}>
      <header className={table.head}>
        <Link to={`/repositories/${encodeURIComponent(name)}` as string} className={table.back} aria-label={`Back to ${name}`}><ChevronLeft size={16} aria-hidden /></Link>
        <h1 className="cut">{pull.data?.title ?? `Pull request ${number}`} <span className="faint num">#{number}</span></h1>
        {pull.data && <PullState pull={pull.data} />}
        <span className="grow" />
        {pull.data && open && mayWrite(me) && (
          <>
            <Button variant="default" loading={busy === "Close"} onClick={() => void run("Close", () => api.POST("/repositories/{name}/pulls/{number}/close", params))}>Close</Button>
            <Button loading={busy === "Merge"} disabled={pull.data.mergeable === false} title={pull.data.mergeable === false ? "It conflicts with its base" : undefined} onClick={() => void merge(pull.data)}>Merge</Button>
          </>
        )}
      </header>
      <Tabs value={search["tab"] ?? "talk"} onChange={(value) => change({ tab: value === "talk" ? undefined : (value ?? undefined) })} className={table.tabs} keepMounted={false}>
        <Tabs.List className={table.tablist} aria-label="Parts of the pull request"><Tabs.Tab value="talk">Conversation</Tabs.Tab><Tabs.Tab value="changes">Changes</Tabs.Tab></Tabs.List>
        <Tabs.Panel value="talk" className={table.panel}>
          <Shown query={pull}>
            {(found) => (
              <div className={table.sections} tabIndex={0} role="region" aria-label="Conversation">
                <section><h2><code>{found.head}</code> into <code>{found.base}</code></h2>{found.body ? <Markdown text={found.body} /> : <p className="dim">Nothing is written about it.</p>}{found.mergeable === false && <p className={table.why}>It conflicts with {found.base}.</p>}</section>
                {found.checks.length > 0 && <section><h2>Checks</h2><div className={table.box}><table className={table.table}><tbody>{found.checks.map((check) => <tr key={check.name}><td>{check.name}</td><td data-right><State name={check.status} /></td></tr>)}</tbody></table></div></section>}
                <section>
                  <h2>{plural(found.comments.length, "comment")}</h2>
                  <ul className={table.comments}>{found.comments.map((one) => <li key={one.id}><div className="faint">{one.author} · <Ago at={one.created_at} suffix=" ago" />{one.path && <> · <code>{one.path}{one.line ? `:${one.line}` : ""}</code></>}</div>{one.body}</li>)}</ul>
                  {mayWrite(me) && <><Textarea autosize minRows={2} maxRows={10} aria-label="Your comment" placeholder="Write a comment" value={text} onChange={(event) => setText(event.currentTarget.value)} /><div><Button variant="default" disabled={!text.trim()} loading={busy === "Comment"} onClick={() => void say()}>Comment</Button></div></>}
                </section>
              </div>
            )}
          </Shown>
        </Tabs.Panel>
        <Tabs.Panel value="changes" className={table.panel}>
          <Shown query={diff}>{(found) => (found.files.length ? <DiffView files={found.files} isCut={found.truncated} comments={comments} onComments={open && mayWrite(me) ? setComments : undefined} footer={footer} /> : <Empty icon={FileDiff} title="No changes" />)}</Shown>
        </Tabs.Panel>
      </Tabs>
    </div>
  );
}
