// What all tests in a real browser share: Chromium, a page that is logged in, and a line to the test in Python that started it.
// Whatever leaves the server's own origin, breaks the content security policy or throws in the page fails the test.
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

export const BASE = process.env.CONSOLE_URL;
export const KEY = process.env.CONSOLE_KEY;
export const GIVEN = JSON.parse(process.env.CONSOLE_GIVEN ?? "{}");
export const WAIT = 30_000; // generous: the machine may be busy

const input = createInterface({ input: process.stdin });
const answers = input[Symbol.asyncIterator]();

/** Asks the test in Python to do something to the server, and waits until it has. */
export async function ask(what, values = {}) {
  process.stdout.write(`${JSON.stringify({ ask: what, ...values })}\n`);
  const { value, done } = await answers.next();
  if (done) throw new Error("the test in Python has gone");
  return JSON.parse(value);
}

export async function api(method, path, body) {
  const response = await fetch(`${BASE}${path}`, {
    method,
    headers: { "x-api-key": KEY, ...(body ? { "content-type": "application/json" } : {}) },
    body: body ? JSON.stringify(body) : undefined,
  });
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  return response.status === 204 ? null : response.json();
}

export async function inBrowser(run, options = {}) {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...options });
  context.setDefaultTimeout(WAIT);
  const faults = [];
  const expected = [];
  context.on("request", (request) => {
    if (!request.url().startsWith(BASE) && !/^(data|blob|about):/.test(request.url())) faults.push(`a request to ${request.url()}`);
  });
  context.on("console", (message) => {
    if (/Content Security Policy|Refused to/.test(message.text())) faults.push(message.text());
  });
  context.on("weberror", (error) => faults.push(`the page threw: ${error.error().stack}`));
  try {
    await run({ browser, context, faults, expected });
    const left = faults.filter((fault) => !expected.some((pattern) => pattern.test(fault)));
    if (left.length) throw new Error(left.join("\n"));
  } finally {
    input.close();
    process.stdin.unref?.();
    await browser.close();
  }
}

/** A page that is logged in by a one-time link. */
export async function loggedIn(context, path = "/board") {
  const page = await context.newPage();
  const { path: link } = await api("POST", "/console/links");
  await page.goto(BASE + link);
  await page.goto(`${BASE}/console${path}`);
  return page;
}

export async function until(check, what) {
  const end = Date.now() + WAIT;
  for (;;) {
    if (await check()) return;
    if (Date.now() > end) throw new Error(`it did not come true: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
