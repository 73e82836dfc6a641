// The stream: one for all tabs; the server is killed in the middle; the page says that it is stale, recovers, and has missed and doubled nothing.
import assert from "node:assert/strict";
import { api, ask, inBrowser, loggedIn, until } from "./harness.mjs";

const make = (n) => api("POST", "/tasks", { repository: "app", prompt: `Streamed ${n}`, agent: "command", command: "true", start: false });

await inBrowser(async ({ context, expected }) => {
  const streams = new Set();
  context.on("request", (request) => request.url().includes("/events?since=") && streams.add(request.frame().page()));
  const one = await loggedIn(context);
  await one.getByText("Live", { exact: true }).waitFor();
  const two = await loggedIn(context);
  await two.getByText("Live", { exact: true }).waitFor();
  assert.equal(streams.size, 1, "both tabs share one stream");
  const shown = (page) => page.getByRole("article").filter({ hasText: /^.*Streamed \d+/ }).count();

  for (let n = 0; n < 5; n += 1) await make(n);
  for (const page of [one, two]) await until(async () => (await shown(page)) === 5, "all cards are there");

  await ask("kill");
  for (const page of [one, two]) await page.getByText(/As of \d\d:\d\d:\d\d, reconnecting/).waitFor();
  assert.equal(await shown(one), 5, "what is known stays on the page");
  // Nobody acts on what may be out of date.
  await one.getByRole("article", { name: /^Streamed 0/ }).hover();
  await one.getByRole("button", { name: "What to do with Streamed 0" }).click();
  await until(() => one.getByRole("menuitem", { name: "Start" }).isDisabled(), "acts are off while the page is stale");
  await one.keyboard.press("Escape");
  await ask("forget"); // the log of events ends before what this page has seen
  await ask("up");
  for (let n = 5; n < 10; n += 1) await make(n);
  for (const page of [one, two]) {
    await page.getByText("Live", { exact: true }).waitFor({ timeout: 60_000 });
    await until(async () => (await shown(page)) === 10, "what came meanwhile is there, too, once");
    await page.getByText("Written while nobody looked").waitFor();
  }

  // The tab that reads goes away: another takes over, without a gap.
  await one.close();
  for (let n = 10; n < 13; n += 1) await make(n);
  await until(async () => (await shown(two)) === 13, "the other tab reads now");
  await two.reload();
  await until(async () => (await shown(two)) === 13, "a reload shows the same");
  expected.push(/ERR_/);
});
