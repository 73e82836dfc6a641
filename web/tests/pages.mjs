// All pages that there are to look at: every address of the registry, and every part of those that have parts.
import { readFile } from "node:fs/promises";
import { BASE } from "./harness.mjs";

export const THEMES = ["light", "dark"];
export const SIZES = { desktop: { width: 1440, height: 900 }, phone: { width: 390, height: 844 } };
const TASK_TABS = ["timeline", "changes", "checks", "terminal", "files", "preview", "screen", "network", "numbers", "about"];
const SANDBOX_TABS = ["overview", "numbers", "log", "terminal", "files", "ports"];

/** Names and addresses, also of one thing of each kind that the server has. */
export async function pagesOf(page) {
  await page.getByRole("link", { name: "Board" }).first().waitFor();
  const get = (path) => page.evaluate(async (address) => (await fetch(address)).json(), path);
  const found = (await registered()).filter((path) => !path.includes("$")).map((path) => ({ name: path.slice(1).replaceAll("/", "-"), path }));
  const add = (name, path) => found.push({ name, path });
  add("board-list", "/board?view=list");
  add("sandboxes-ended", "/sandboxes?show=ended");
  const [task] = richest((await get("/tasks?limit=200")).tasks);
  if (task) {
    // Its sandbox may rest; the terminal and the files are to be seen.
    await page.evaluate(async (id) => fetch(`/console/api/sandboxes/${id}/resume`, { method: "POST" }), task.sandbox_id);
    add("board-panel", `/board?task=${task.id}`);
    for (const tab of TASK_TABS) add(`task-${tab}`, `/tasks/${task.id}?tab=${tab}`);
  }
  const sandbox = (await get("/console/api/sandboxes")).sandboxes.toSorted((a, b) => (a.state === "running" ? 0 : 1) - (b.state === "running" ? 0 : 1) || (a.task_id ? 1 : 0) - (b.task_id ? 1 : 0))[0];
  if (sandbox) for (const tab of SANDBOX_TABS) add(`sandbox-${tab}`, `/sandboxes/${sandbox.id}?tab=${tab}`);
  const { templates } = await get("/console/api/templates");
  const template = templates.filter((one) => one.builds).toSorted((a, b) => (a.created_at < b.created_at ? 1 : -1))[0];
  if (template) add("template", `/templates/${template.id}`);
  for (const { name } of (await get("/repositories")).repositories) {
    const place = `/repositories/${encodeURIComponent(name)}`;
    const [pull] = (await get(`${place}/pulls`)).pulls ?? [];
    if (!pull) continue;
    add("repository", place);
    add("pull", `${place}/pulls/${pull.number}`);
    add("pull-changes", `${place}/pulls/${pull.number}?tab=changes`);
    break;
  }
  return found;
}

/** Addresses of the registry that none of these pages is an example of. */
export async function unseen(pages) {
  const seen = pages.map(({ path }) => path.split("?")[0].split("/").length + path.split("?")[0].split("/")[1]);
  return (await registered()).filter((path) => !seen.includes(path.split("/").length + path.split("/")[1]));
}

async function registered() {
  const source = await readFile(new URL("../src/pages/index.ts", import.meta.url), "utf8");
  return [...source.matchAll(/\{ path: "([^"]+)"/g)].map(([, path]) => path);
}

export async function show(page, path) {
  await page.goto(`${BASE}/console${path}`);
  await page.locator("#main").waitFor();
  await page.waitForLoadState("load");
  await page.waitForFunction(() => !document.querySelector("[role=status][aria-label=Loading]"), null, { timeout: 15_000 }).catch(() => undefined);
  await page.waitForTimeout(500); // transitions, and what comes over the stream
}

/** Tasks with the most to see first. */
function richest(tasks) {
  const worth = (task) => (task.sandbox_id ? 4 : 0) + (task.changes.files ? 2 : 0) + (task.pull_request ? 1 : 0);
  return tasks.toSorted((a, b) => worth(b) - worth(a));
}
