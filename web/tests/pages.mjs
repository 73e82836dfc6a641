// All pages that there are to look at: those of the navigation, and every part of a few tasks.
import { BASE } from "./harness.mjs";

export const THEMES = ["light", "dark"];
export const SIZES = { desktop: { width: 1440, height: 900 }, phone: { width: 390, height: 844 } };

/** Names and addresses. `tasks`: which tasks to open, those with the most to see. */
export async function pagesOf(page, tasks) {
  await page.getByRole("link", { name: "Board" }).first().waitFor();
  const links = await page.locator("nav a[href^='/console/']").evaluateAll((all) => all.map((link) => new URL(link.href).pathname.replace("/console", "")));
  const found = [...new Set(links)].map((path) => ({ name: path.slice(1).replaceAll("/", "-"), path }));
  found.push({ name: "board-list", path: "/board?view=list" });
  const [first] = tasks;
  if (first) {
    found.push({ name: "board-panel", path: `/board?task=${first}` });
    for (const tab of ["timeline", "changes", "checks", "terminal", "files", "preview", "numbers", "about"]) found.push({ name: `task-${tab}`, path: `/tasks/${first}?tab=${tab}` });
  }
  return found;
}

export async function show(page, path) {
  await page.goto(`${BASE}/console${path}`);
  await page.locator("#main").waitFor();
  await page.waitForLoadState("load");
  await page.waitForFunction(() => !document.querySelector("[role=status][aria-label=Loading]"), null, { timeout: 15_000 }).catch(() => undefined);
  await page.waitForTimeout(250); // transitions, and what comes over the stream
}

/** Tasks with the most to see first. */
export async function richest(page) {
  const { tasks } = await page.evaluate(async () => (await fetch("/tasks?limit=200")).json());
  const worth = (task) => (task.sandbox_id ? 4 : 0) + (task.changes.files ? 2 : 0) + (task.pull_request ? 1 : 0);
  return tasks.sort((a, b) => worth(b) - worth(a)).map((task) => task.id);
}
