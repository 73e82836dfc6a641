// The files of a sandbox: a tree, a viewer that can edit text, upload, download, remove.
import { ActionIcon, Button, Menu, TextInput, Tooltip } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { ChevronDown, ChevronRight, Download, File, FilePlus, Folder, FolderPlus, Link2, RefreshCw, Trash2, Upload } from "lucide-react";
import { useEffect, useRef, useState, type DragEvent } from "react";
import { api, send, type Schemas } from "../api/client";
import { mayWrite, useMe } from "../app/session";
import { failed } from "../tasks/acts";
import { confirm } from "../ui/confirm";
import { bytes } from "../ui/format";
import { Failed, Loading, Notice, Shown } from "../ui/states";
import classes from "./files.module.css";

type FileEntry = Schemas["ConsoleEntry"];
const READ = 1 << 20; // bytes that are shown at most

const fileAddress = (id: string, path: string) => `/console/api/sandboxes/${encodeURIComponent(id)}/file?${new URLSearchParams({ path })}`;
const parent = (path: string) => path.slice(0, path.lastIndexOf("/")) || "/";

export function Files({ sandboxId, root = "/home/user" }: { sandboxId: string; root?: string }) {
  const [top, setTop] = useState(root);
  const [typed, setTyped] = useState(root);
  const [shown, setShown] = useState<FileEntry | null>(null);
  const queries = useQueryClient();
  const me = useMe();
  const canWrite = mayWrite(me);
  const picker = useRef<HTMLInputElement>(null);
  const [over, setOver] = useState(false);
  const renew = () => queries.invalidateQueries({ queryKey: ["files", sandboxId] });
  const folder = shown ? (shown.type === "dir" ? shown.path : parent(shown.path)) : top;
  async function upload(list: Iterable<globalThis.File>) {
    for (const each of list) {
      try {
        await send(fileAddress(sandboxId, `${folder === "/" ? "" : folder}/${each.name}`), { method: "PUT", body: each });
      } catch (error) {
        failed(`${each.name} was not uploaded`, error);
      }
    }
    await renew();
  }
  async function make(kind: "file" | "folder") {
    const name = window.prompt(kind === "file" ? `A new file in ${folder}` : `A new folder in ${folder}`)?.trim();
    if (!name) return;
    const path = name.startsWith("/") ? name : `${folder === "/" ? "" : folder}/${name}`;
    try {
      if (kind === "file") await send(fileAddress(sandboxId, path), { method: "PUT", body: "" });
      else await api.POST("/console/api/sandboxes/{sandbox_id}/mkdir", { params: { path: { sandbox_id: sandboxId } }, body: { path } });
      await renew();
    } catch (error) {
      failed(`${path} was not made`, error);
    }
  }
  async function remove(entry: FileEntry) {
    if (!(await confirm(`Remove ${entry.name}?`, entry.type === "dir" ? "With everything that is in it." : "It cannot be brought back.", "Remove"))) return;
    try {
      await send(fileAddress(sandboxId, entry.path), { method: "DELETE" });
      setShown(null);
      await renew();
    } catch (error) {
      failed(`${entry.path} was not removed`, error);
    }
  }
  function drop(event: DragEvent) {
    event.preventDefault();
    setOver(false);
    if (canWrite) void upload(event.dataTransfer.files);
  }
  return (
    <div className={classes.frame}>
      <div className={classes.bar}>
        <form className="grow" onSubmit={(event) => (event.preventDefault(), setTop(typed.trim() || "/"), setShown(null))}>
          <TextInput aria-label="Folder" value={typed} onChange={(event) => setTyped(event.currentTarget.value)} classNames={{ input: "mono" }} />
        </form>
        <Tooltip label="Read again"><ActionIcon aria-label="Read again" onClick={() => void renew()}><RefreshCw size={14} /></ActionIcon></Tooltip>
        {canWrite && (
          <>
            <Menu width={170}>
              <Menu.Target><ActionIcon aria-label="New file or folder"><FilePlus size={14} /></ActionIcon></Menu.Target>
              <Menu.Dropdown>
                <Menu.Item leftSection={<FilePlus size={14} />} onClick={() => void make("file")}>New file…</Menu.Item>
                <Menu.Item leftSection={<FolderPlus size={14} />} onClick={() => void make("folder")}>New folder…</Menu.Item>
              </Menu.Dropdown>
            </Menu>
            <Tooltip label={`Upload to ${folder}`}><ActionIcon aria-label="Upload" onClick={() => picker.current?.click()}><Upload size={14} /></ActionIcon></Tooltip>
            <input ref={picker} type="file" multiple hidden aria-label="Files to upload" onChange={(event) => void upload([...(event.currentTarget.files ?? [])])} />
          </>
        )}
      </div>
      <div className={classes.main}>
        <div className={classes.tree} data-over={over || undefined} onDragOver={(event) => (event.preventDefault(), setOver(true))} onDragLeave={() => setOver(false)} onDrop={drop}>
          <Level sandboxId={sandboxId} path={top} depth={0} shown={shown} onShow={setShown} />
        </div>
        <div className={classes.view}>
          {!shown || shown.type === "dir" ? (
            <Notice icon={File} title="Choose a file">{canWrite ? "Or drop files on the list to upload them." : null}</Notice>
          ) : (
            <Viewer key={shown.path} sandboxId={sandboxId} entry={shown} canWrite={canWrite} onRemove={() => void remove(shown)} />
          )}
        </div>
      </div>
    </div>
  );
}

function Level({ sandboxId, path, depth, shown, onShow }: { sandboxId: string; path: string; depth: number; shown: FileEntry | null; onShow: (entry: FileEntry) => void }) {
  const list = useQuery({
    queryKey: ["files", sandboxId, path],
    queryFn: () => api.data(api.GET("/console/api/sandboxes/{sandbox_id}/files", { params: { path: { sandbox_id: sandboxId }, query: { path } } })),
    refetchInterval: 15_000,
  });
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  if (list.isError) return depth ? <div className={classes.bad} style={{ paddingLeft: 14 * depth + 8 }}>{list.error.message}</div> : <Failed error={list.error} retry={() => void list.refetch()} />;
  if (!list.data) return depth ? null : <Loading lines={4} />;
  const entries = list.data.entries.toSorted((a, b) => (a.type === "dir" ? 0 : 1) - (b.type === "dir" ? 0 : 1) || a.name.localeCompare(b.name));
  if (!entries.length) return <div className={classes.none} style={{ paddingLeft: 14 * depth + 26 }}>Empty</div>;
  function click(entry: FileEntry) {
    onShow(entry);
    if (entry.type === "dir") setOpen((old) => (old.has(entry.path) ? new Set([...old].filter((each) => each !== entry.path)) : new Set([...old, entry.path])));
  }
  return (
    <>
      {entries.map((entry) => {
        const isDir = entry.type === "dir";
        const Icon = isDir ? Folder : entry.type === "symlink" ? Link2 : File;
        return (
          <div key={entry.path}>
            <button type="button" className={classes.entry} style={{ paddingLeft: 14 * depth + 8 }} data-on={shown?.path === entry.path || undefined} aria-expanded={isDir ? open.has(entry.path) : undefined} onClick={() => click(entry)}>
              {isDir ? open.has(entry.path) ? <ChevronDown size={13} aria-hidden /> : <ChevronRight size={13} aria-hidden /> : <span className={classes.gap} />}
              <Icon size={14} strokeWidth={1.5} aria-hidden />
              <span className="cut grow">{entry.name}</span>
              {!isDir && <span className="faint num">{bytes(entry.size)}</span>}
            </button>
            {isDir && open.has(entry.path) && <Level sandboxId={sandboxId} path={entry.path} depth={depth + 1} shown={shown} onShow={onShow} />}
          </div>
        );
      })}
    </>
  );
}

function Viewer({ sandboxId, entry, canWrite, onRemove }: { sandboxId: string; entry: FileEntry; canWrite: boolean; onRemove: () => void }) {
  const address = fileAddress(sandboxId, entry.path);
  const content = useQuery({
    queryKey: ["file", sandboxId, entry.path],
    queryFn: async () => new Uint8Array(await (await send(`${address}&limit=${READ}`)).arrayBuffer()),
    staleTime: 0,
    gcTime: 0,
  });
  const [text, setText] = useState<string | null>(null);
  const [saved, setSaved] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    if (!content.data || text !== null) return;
    const decoded = readable(content.data);
    setText(decoded);
    setSaved(decoded);
  }, [content.data, text]);
  const isCut = entry.size > READ;
  const isChanged = text !== saved;
  async function save() {
    setBusy(true);
    try {
      await send(address, { method: "PUT", body: text ?? "" });
      setSaved(text);
    } catch (error) {
      failed(`${entry.name} was not saved`, error);
    } finally {
      setBusy(false);
    }
  }
  return (
    <div className={classes.viewer}>
      <div className={classes.name}>
        <code className="cut grow" title={entry.path}>{entry.path}</code>
        {isChanged && canWrite && <Button size="compact-sm" loading={busy} onClick={() => void save()}>Save</Button>}
        <Tooltip label="Download"><ActionIcon component="a" href={address} download={entry.name} aria-label={`Download ${entry.name}`}><Download size={14} /></ActionIcon></Tooltip>
        {canWrite && <Tooltip label="Remove"><ActionIcon aria-label={`Remove ${entry.name}`} onClick={onRemove}><Trash2 size={14} /></ActionIcon></Tooltip>}
      </div>
      {isCut && <div className={classes.note}>The first {bytes(READ)} of {bytes(entry.size)}. Download it to see all.</div>}
      <Shown query={content}>
        {(data) =>
          text === null && readable(data) === null ? (
            <Notice icon={File} title="Not a text">{bytes(entry.size)}; download it to look at it.</Notice>
          ) : (
            <textarea className={classes.text} spellCheck={false} aria-label={`Content of ${entry.name}`} readOnly={!canWrite || isCut} value={text ?? ""} onChange={(event) => setText(event.currentTarget.value)} onKeyDown={(event) => { if ((event.metaKey || event.ctrlKey) && event.key === "s") { event.preventDefault(); if (isChanged) void save(); } }} />
          )
        }
      </Shown>
    </div>
  );
}

function readable(data: Uint8Array): string | null {
  if (data.subarray(0, 8000).includes(0)) return null;
  try {
    return new TextDecoder("utf-8", { fatal: data.length < READ }).decode(data);
  } catch {
    return null;
  }
}
