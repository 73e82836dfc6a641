// The board: cards appear by themselves, are moved by mouse, keys and menu, filtered, selected, listed, opened beside it.
import assert from "node:assert/strict";
import { api, BASE, inBrowser, loggedIn, until } from "./harness.mjs";

const task = (title, more = {}) => api("POST", "/tasks", { repository: "app", prompt: title, agent: "command", command: "true", start: false, ...more });
const state = async (id) => (await api("GET", `/tasks/${id}`)).state;

await inBrowser(async ({ context }) => {
  const first = await task("Move me by mouse", { labels: ["one"] });
  const page = await loggedIn(context);
  const lane = (title) => page.getByRole("region", { name: new RegExp(`^${title}, `) });
  const card = (title) => page.getByRole("article", { name: new RegExp(`^${title}`) });
  await card("Move me by mouse").waitFor();

  // What others make appears without a reload.
  const second = await task("Move me by keys");
  const third = await task("Move me by menu", { labels: ["two"] });
  await card("Move me by menu").waitFor();

  await card("Move me by mouse").dragTo(lane("Queued"));
  await until(async () => (await state(first.id)) !== "todo", "the dragged card has started");
  await lane("To do").getByText("Move me by mouse").waitFor({ state: "detached" });

  // To where it may not go it does not go.
  await card("Move me by keys").dragTo(lane("Review"));
  await lane("To do").getByText("Move me by keys").waitFor();
  assert.equal(await state(second.id), "todo");

  await card("Move me by keys").focus();
  await page.keyboard.press("Shift+ArrowRight");
  await until(async () => (await state(second.id)) !== "todo", "the card has moved by keys");

  await card("Move me by menu").hover();
  await page.getByRole("button", { name: "What to do with Move me by menu" }).click();
  await page.getByRole("menuitem", { name: "Queued" }).click();
  await until(async () => (await state(third.id)) !== "todo", "the card has moved by its menu");

  // Filters are in the address; views keep them.
  for (const title of ["Alpha one", "Beta two"]) await task(title, { labels: [title.slice(0, 4).trim()] });
  await card("Beta two").waitFor();
  await page.getByLabel("Filter tasks by words").fill("alpha");
  await card("Beta two").waitFor({ state: "detached" });
  assert.match(page.url(), /q=alpha/);
  await page.getByRole("button", { name: "Saved views" }).click();
  await page.getByLabel("Name of the view").fill("Mine");
  await page.getByRole("button", { name: "Save", exact: true }).click();
  await page.getByLabel("Filter tasks by words").fill("");
  await card("Beta two").waitFor();
  await page.getByRole("button", { name: "Saved views" }).click();
  await page.getByRole("button", { name: "Mine", exact: true }).click();
  await card("Beta two").waitFor({ state: "detached" });
  await page.getByLabel("Filter tasks by words").fill("");

  // Several at once.
  await card("Alpha one").click({ modifiers: ["Control"] });
  await card("Beta two").click({ modifiers: ["Control"] });
  await page.getByRole("toolbar", { name: "Selected tasks" }).getByRole("button", { name: /^Delete/ }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await card("Alpha one").waitFor({ state: "detached" });
  await card("Beta two").waitFor({ state: "detached" });

  // Beside the board, with its timeline; Escape closes it and gives the focus back.
  const kept = await task("Look at me");
  await card("Look at me").click();
  await page.getByRole("complementary", { name: "Look at me" }).getByRole("log", { name: "Timeline" }).getByText("Look at me").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("complementary", { name: "Look at me" }).waitFor({ state: "detached" });

  await page.keyboard.press("v");
  await page.getByRole("cell", { name: "Look at me", exact: true }).waitFor();
  await page.goto(`${BASE}/console/tasks/${kept.id}`);
  await page.getByRole("heading", { name: "Look at me" }).waitFor();

  // The palette finds it, and `?` lists the keys.
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox").fill("look");
  await page.getByRole("option", { name: /Look at me/ }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("combobox").waitFor({ state: "detached" });
  await page.getByRole("heading", { name: "Look at me" }).click();
  await page.keyboard.press("?");
  await page.getByRole("dialog").getByText("Search and commands").waitFor();
});
