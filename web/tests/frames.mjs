// 1,000 cards and 50,000 entries cost a frame no more than a few do: the browser's own trace says how long each task of its main thread took.
import assert from "node:assert/strict";
import { BASE, GIVEN, inBrowser, loggedIn, until } from "./harness.mjs";

const STEPS = 60;
const CATEGORIES = ["disabled-by-default-devtools.timeline", "toplevel", "__metadata"];
const LONG_MS = 50; // what the web calls a long task

/** How long the main thread's tasks took while `act` went on: the longer half, in milliseconds. */
async function measured(browser, page, act) {
  await browser.startTracing(page, { categories: CATEGORIES });
  await act();
  const { traceEvents } = JSON.parse((await browser.stopTracing()).toString());
  const main = new Set(traceEvents.filter((event) => event.name === "thread_name" && event.args.name === "CrRendererMain").map((event) => `${event.pid}/${event.tid}`));
  const tasks = traceEvents.filter((event) => event.name === "RunTask" && event.ph === "X" && main.has(`${event.pid}/${event.tid}`)).map((event) => event.dur / 1000);
  assert.ok(tasks.length >= STEPS, `the trace has ${tasks.length} tasks`);
  return tasks.sort((a, b) => b - a).slice(0, STEPS); // the heaviest: one for each step that was scrolled
}

const median = (list) => list[Math.floor(list.length / 2)];
const long = (list) => list.filter((ms) => ms > LONG_MS).length;

async function scrolled(page, place) {
  await place.hover();
  for (let n = 0; n < STEPS; n += 1) {
    await page.mouse.wheel(0, n % 2 || n < STEPS / 2 ? 240 : -200);
    await page.evaluate(() => new Promise(requestAnimationFrame));
  }
}

function compare(what, few, many) {
  process.stdout.write(`${what}: few ${median(few).toFixed(1)} ms, ${long(few)} long; many ${median(many).toFixed(1)} ms, ${long(many)} long\n`);
  // In the same run, on the same machine: what is drawn does not depend on how much there is.
  assert.ok(median(many) <= 3 * median(few) + 4, `${what}: a frame with many takes ${median(many)} ms, with few ${median(few)} ms`);
  assert.ok(long(many) <= long(few) + STEPS / 10, `${what}: ${long(many)} long frames with many, ${long(few)} with few`);
}

await inBrowser(async ({ browser, context }) => {
  const page = await loggedIn(context, `/board?q=${encodeURIComponent(GIVEN.few)}`);
  const lane = page.getByRole("region", { name: /^Done, / });
  const cards = () => page.getByRole("article").count();
  await until(async () => (await cards()) > 0, "the cards are there");
  const fewCards = await measured(browser, page, () => scrolled(page, lane));
  await page.getByLabel("Filter tasks by words").fill("");
  await page.getByRole("region", { name: /^Done, \d{3}/ }).waitFor();
  const manyCards = await measured(browser, page, () => scrolled(page, lane));
  assert.ok((await cards()) < 150, "only cards in sight are drawn");
  compare("cards", fewCards, manyCards);

  const log = page.getByRole("log", { name: "Timeline" });
  const rows = () => log.locator("[data-index]").count();
  const open = async (task, last) => {
    await page.goto(`${BASE}/console/tasks/${task}`);
    await log.getByText(last, { exact: true }).first().waitFor({ timeout: 60_000 });
    await log.hover();
    for (let n = 0; n < 20; n += 1) await page.mouse.wheel(0, -600);
  };
  await open(GIVEN.short, `Message ${GIVEN.shortLast}`);
  const fewRows = await measured(browser, page, () => scrolled(page, log));
  await open(GIVEN.long, `Message ${GIVEN.longLast}`);
  const manyRows = await measured(browser, page, () => scrolled(page, log));
  assert.ok((await rows()) < 150, "only entries in sight are drawn");
  compare("entries", fewRows, manyRows);

  // A link to an early entry shows it.
  await page.goto("about:blank");
  await page.goto(`${BASE}/console/tasks/${GIVEN.long}#e2`);
  await log.getByText("Message 0", { exact: true }).waitFor({ timeout: 60_000 });
});
