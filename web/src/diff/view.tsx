// A diff: tree of files, unified or split, and comments on lines that are collected into one review.
import { ActionIcon, Button, Checkbox, SegmentedControl, Textarea, Tooltip } from "@mantine/core";
import { ChevronDown, ChevronRight, MessageSquarePlus, X } from "lucide-react";
import { memo, useMemo, useState, type ReactNode } from "react";
import type { Schemas } from "../api/client";
import { plural } from "../ui/format";
import { pairs, parsePatch, tree, type Folder, type Row } from "./patch";
import classes from "./view.module.css";

export type FileDiff = Schemas["PullFileInfo"];
export interface Comment {
  path: string;
  line: number;
  side: "old" | "new";
  text: string;
}
interface DiffProps {
  files: readonly FileDiff[];
  isCut: boolean;
  comments: readonly Comment[];
  onComments?: (comments: readonly Comment[]) => void; // without it nobody can comment
  footer?: ReactNode;
}
const LARGE = 600;
const SPLIT = "sandlot-diff-split";

export function DiffView({ files, isCut, comments, onComments, footer }: DiffProps) {
  const [split, setSplit] = useState(() => localStorage.getItem(SPLIT) === "1");
  const [viewed, setViewed] = useState<ReadonlySet<string>>(new Set());
  const folders = useMemo(() => tree(files.map((file) => file.path)), [files]);
  const byPath = useMemo(() => new Map(files.map((file) => [file.path, file])), [files]);
  const see = (path: string) => document.getElementById(`diff-${path}`)?.scrollIntoView({ block: "start" });
  const [added, removed] = [files.reduce((sum, file) => sum + file.added, 0), files.reduce((sum, file) => sum + file.removed, 0)];
  return (
    <div className={classes.frame}>
      <div className={classes.bar}>
        <span className="num">{plural(files.length, "file")} <span className={classes.plusText}>+{added}</span> <span className={classes.minusText}>−{removed}</span></span>
        <span className="faint">{viewed.size > 0 && `${viewed.size} viewed`}</span>
        <span className="grow" />
        <SegmentedControl aria-label="Layout of the diff" value={split ? "split" : "unified"} onChange={(value) => (setSplit(value === "split"), localStorage.setItem(SPLIT, value === "split" ? "1" : "0"))} data={[{ value: "unified", label: "Unified" }, { value: "split", label: "Split" }]} />
      </div>
      <div className={classes.main}>
        {files.length > 1 && <nav className={classes.tree} aria-label="Changed files"><Branch folder={folders} byPath={byPath} onSee={see} viewed={viewed} /></nav>}
        <div className={classes.files} tabIndex={0} role="region" aria-label="Changes">
          {isCut && <p className={classes.cut}>The diff is too large to show all of it.</p>}
          {files.map((file) => (
            <FileBlock
              key={file.path}
              file={file}
              split={split}
              isViewed={viewed.has(file.path)}
              onViewed={(on) => setViewed((old) => new Set(on ? [...old, file.path] : [...old].filter((path) => path !== file.path)))}
              comments={comments.filter((comment) => comment.path === file.path)}
              onComment={onComments && ((comment) => onComments([...comments, comment]))}
              onForget={onComments && ((comment) => onComments(comments.filter((each) => each !== comment)))}
            />
          ))}
        </div>
      </div>
      {footer}
    </div>
  );
}

function Branch({ folder, byPath, onSee, viewed }: { folder: Folder; byPath: ReadonlyMap<string, FileDiff>; onSee: (path: string) => void; viewed: ReadonlySet<string> }) {
  return (
    <ul>
      {folder.folders.map((each) => (
        <li key={each.path}><span className={classes.folder}>{each.name}</span><Branch folder={each} byPath={byPath} onSee={onSee} viewed={viewed} /></li>
      ))}
      {folder.files.map((path) => {
        const file = byPath.get(path)!;
        return (
          <li key={path}>
            <button type="button" onClick={() => onSee(path)} data-viewed={viewed.has(path) || undefined}>
              <span className="cut grow">{path.split("/").at(-1)}</span>
              <Status file={file} />
            </button>
          </li>
        );
      })}
    </ul>
  );
}

function Status({ file }: { file: FileDiff }) {
  const letter = file.status.charAt(0).toUpperCase();
  return <span className={classes.status} data-status={file.status} title={file.status}>{letter}<span className="hidden-text">{file.status.slice(1)}</span></span>;
}

interface FileProps {
  file: FileDiff;
  split: boolean;
  isViewed: boolean;
  onViewed: (on: boolean) => void;
  comments: readonly Comment[];
  onComment?: (comment: Comment) => void;
  onForget?: (comment: Comment) => void;
}

function FileBlock({ file, split, isViewed, onViewed, comments, onComment, onForget }: FileProps) {
  const rows = useMemo(() => (file.patch ? parsePatch(file.patch) : []), [file.patch]);
  const [open, setOpen] = useState(rows.length <= LARGE);
  const isOpen = open && !isViewed;
  return (
    <section className={classes.file} id={`diff-${file.path}`} aria-label={file.path}>
      <h3 className={classes.name}>
        <button type="button" aria-expanded={isOpen} onClick={() => (isViewed ? onViewed(false) : setOpen(!open))}>
          {isOpen ? <ChevronDown size={14} aria-hidden /> : <ChevronRight size={14} aria-hidden />}
          <code className="cut">{file.old_path && file.old_path !== file.path ? `${file.old_path} → ` : ""}{file.path}</code>
        </button>
        <span className={`${classes.counts} num`}><span className={classes.plusText}>+{file.added}</span> <span className={classes.minusText}>−{file.removed}</span></span>
        <Checkbox size="xs" label="Viewed" checked={isViewed} onChange={(event) => onViewed(event.currentTarget.checked)} />
      </h3>
      {isOpen && (file.binary ? <p className={classes.note}>A binary file.</p> : !rows.length ? <p className={classes.note}>{file.status === "renamed" ? "Renamed, not changed." : "Nothing to show."}</p> : <Lines file={file} rows={rows} split={split} comments={comments} onComment={onComment} onForget={onForget} />)}
      {!isOpen && !isViewed && rows.length > LARGE && <p className={classes.note}>{rows.length} lines. <button type="button" className={classes.show} onClick={() => setOpen(true)}>Show them</button></p>}
    </section>
  );
}

const Lines = memo(function Lines({ file, rows, split, comments, onComment, onForget }: { file: FileDiff; rows: readonly Row[]; split: boolean; comments: readonly Comment[]; onComment?: (comment: Comment) => void; onForget?: (comment: Comment) => void }) {
  const [writing, setWriting] = useState<string | null>(null);
  const place = (row: Row) => (row.new !== null ? { line: row.new, side: "new" as const } : { line: row.old ?? 0, side: "old" as const });
  const name = (row: Row) => `${place(row).side}${place(row).line}`;
  const below = (row: Row | null, columns: number) => {
    if (!row || row.kind === "hunk") return null;
    const at = place(row);
    const here = comments.filter((comment) => comment.line === at.line && comment.side === at.side);
    const isWriting = writing === name(row);
    if (!here.length && !isWriting) return null;
    return (
      <tr key={`c${name(row)}`}>
        <td colSpan={columns} className={classes.comments}>
          {here.map((comment, n) => <div key={n} className={classes.comment}><span>{comment.text}</span>{onForget && <ActionIcon size={22} aria-label="Remove the comment" onClick={() => onForget(comment)}><X size={13} /></ActionIcon>}</div>)}
          {isWriting && onComment && <Writing onCancel={() => setWriting(null)} onDone={(text) => (onComment({ path: file.path, ...at, text }), setWriting(null))} />}
        </td>
      </tr>
    );
  };
  const number = (row: Row | null, side: "old" | "new", canComment: boolean) => (
    <td className={classes.number} data-kind={row?.kind}>
      {row?.[side] ?? ""}
      {canComment && onComment && row && (
        <Tooltip label="Comment on this line"><button type="button" className={classes.add} aria-label={`Comment on line ${place(row).line}`} onClick={() => setWriting(name(row))}><MessageSquarePlus size={13} aria-hidden /></button></Tooltip>
      )}
    </td>
  );
  const code = (row: Row | null) => <td className={classes.code} data-kind={row?.kind ?? "void"}><span className={classes.sign} aria-hidden>{row?.kind === "add" ? "+" : row?.kind === "del" ? "−" : " "}</span>{row?.text}</td>;
  return (
    <table className={classes.table} data-split={split || undefined}>
      {split ? <colgroup><col width="46" /><col /><col width="46" /><col /></colgroup> : <colgroup><col width="46" /><col width="46" /><col /></colgroup>}
      <tbody>
        {split
          ? pairs(rows).map((pair, n) => pair.hunk ? <Hunk key={n} row={pair.hunk} columns={4} /> : [
              <tr key={n}>{number(pair.left, "old", pair.left?.kind === "del")}{code(pair.left)}{number(pair.right, "new", true)}{code(pair.right)}</tr>,
              pair.left !== pair.right && below(pair.left, 4),
              below(pair.right, 4),
            ])
          : rows.map((row, n) => row.kind === "hunk" ? <Hunk key={n} row={row} columns={3} /> : [<tr key={n}>{number(row, "old", false)}{number(row, "new", true)}{code(row)}</tr>, below(row, 3)])}
      </tbody>
    </table>
  );
});

function Hunk({ row, columns }: { row: Row; columns: number }) {
  return <tr><td colSpan={columns} className={classes.hunk}>⋯ {row.text}</td></tr>;
}

function Writing({ onDone, onCancel }: { onDone: (text: string) => void; onCancel: () => void }) {
  const [text, setText] = useState("");
  return (
    <form className={classes.writing} onSubmit={(event) => (event.preventDefault(), text.trim() && onDone(text.trim()))}>
      <Textarea autoFocus autosize minRows={2} aria-label="Comment" placeholder="What should the agent do about this line?" value={text} onChange={(event) => setText(event.currentTarget.value)} onKeyDown={(event) => { if (event.key === "Enter" && (event.metaKey || event.ctrlKey) && text.trim()) onDone(text.trim()); if (event.key === "Escape") onCancel(); }} />
      <div className="row" style={{ justifyContent: "flex-end", marginTop: 6 }}>
        <Button variant="subtle" color="gray" size="compact-sm" onClick={onCancel}>Cancel</Button>
        <Button type="submit" size="compact-sm" disabled={!text.trim()}>Add to the review</Button>
      </div>
    </form>
  );
}
