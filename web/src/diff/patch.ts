// A unified patch as rows: what is on the old side, what is on the new side, and what was left out between.
export interface Row {
  kind: "same" | "add" | "del" | "hunk";
  text: string;
  old: number | null;
  new: number | null;
}
export interface Pair {
  left: Row | null;
  right: Row | null;
  hunk?: Row;
}
const HUNK = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)$/;

export function parsePatch(patch: string): Row[] {
  const rows: Row[] = [];
  let [old, now, inside] = [0, 0, false];
  for (const line of patch.replace(/\n$/, "").split("\n")) {
    const hunk = HUNK.exec(line);
    if (hunk) {
      [old, now, inside] = [Number(hunk[1]), Number(hunk[2]), true];
      rows.push({ kind: "hunk", text: hunk[3]!.trim(), old: null, new: null });
    } else if (!inside || line.startsWith("\\")) {
      continue; // the file's head, or "No newline at end of file"
    } else if (line.startsWith("+")) rows.push({ kind: "add", text: line.slice(1), old: null, new: now++ });
    else if (line.startsWith("-")) rows.push({ kind: "del", text: line.slice(1), old: old++, new: null });
    else rows.push({ kind: "same", text: line.slice(1), old: old++, new: now++ });
  }
  return rows;
}

/** Removed lines beside the added ones that replace them. */
export function pairs(rows: readonly Row[]): Pair[] {
  const out: Pair[] = [];
  let n = 0;
  while (n < rows.length) {
    const row = rows[n]!;
    if (row.kind === "hunk") out.push({ left: null, right: null, hunk: row });
    else if (row.kind === "same") out.push({ left: row, right: row });
    else {
      const dels: Row[] = [];
      const adds: Row[] = [];
      for (; n < rows.length && rows[n]!.kind === "del"; n += 1) dels.push(rows[n]!);
      for (; n < rows.length && rows[n]!.kind === "add"; n += 1) adds.push(rows[n]!);
      for (let k = 0; k < Math.max(dels.length, adds.length); k += 1) out.push({ left: dels[k] ?? null, right: adds[k] ?? null });
      continue;
    }
    n += 1;
  }
  return out;
}

export interface Folder {
  name: string;
  path: string;
  folders: Folder[];
  files: string[];
}

/** Paths as a tree; folders with nothing but one folder in them are shown as one. */
export function tree(paths: readonly string[]): Folder {
  const root: Folder = { name: "", path: "", folders: [], files: [] };
  for (const path of paths) {
    let at = root;
    for (const part of path.split("/").slice(0, -1)) {
      const full = at.path ? `${at.path}/${part}` : part;
      let next = at.folders.find((folder) => folder.path === full);
      if (!next) at.folders.push((next = { name: part, path: full, folders: [], files: [] }));
      at = next;
    }
    at.files.push(path);
  }
  const squeeze = (folder: Folder): Folder => {
    const folders = folder.folders.map(squeeze);
    if (folder !== root && folders.length === 1 && !folder.files.length) return { ...folders[0]!, name: `${folder.name}/${folders[0]!.name}` };
    return { ...folder, folders };
  };
  return squeeze(root);
}
