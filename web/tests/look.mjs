// A pull request, a build's log, a protected port opened by a grant, and what views show when they have nothing to show.
import assert from "node:assert/strict";
import { api, ask, BASE, inBrowser, loggedIn, until } from "./harness.mjs";

await inBrowser(async ({ browser, context, expected }) => {
  const page = await loggedIn(context, "/repositories/orders/pulls/1");
  await page.getByRole("heading", { level: 1, name: /Add a \/health route/ }).waitFor();
  await page.getByText("Should it say the version, too?").waitFor();
  await page.getByLabel("Your comment").fill("It should.");
  await page.getByRole("button", { name: "Comment", exact: true }).click();
  await page.getByRole("listitem").filter({ hasText: "It should." }).waitFor();
  await page.getByRole("tab", { name: "Changes" }).click();
  await page.getByRole("region", { name: "src/orders/app.py" }).getByText("async def health").waitFor();

  // The log of a build, step by step.
  const { templates } = await api("GET", "/console/api/templates");
  await page.goto(`${BASE}/console/templates/${templates.find((one) => one.names.includes("orders-dev")).id}`);
  await page.getByRole("region", { name: "Log of the build" }).getByText("one step").first().waitFor();

  // A protected port: in by a grant, on a host of its own; without one, no way in.
  expected.push(/8000-\w+\.localhost/);
  const { sandboxes } = await api("GET", "/console/api/sandboxes");
  const sandbox = sandboxes.find((one) => one.metadata.purpose === "a look around");
  await page.goto(`${BASE}/console/sandboxes/${sandbox.id}?tab=ports`);
  const opened = context.waitForEvent("page");
  await page.getByRole("listitem").filter({ hasText: "8000" }).getByRole("button", { name: "Open" }).click();
  const port = await opened;
  await port.getByRole("heading", { name: "Hello" }).waitFor();
  assert.match(port.url(), new RegExp(`^http://8000-${sandbox.id}\\.localhost:\\d+/$`), "the grant is not in the address any more");
  const stranger = await browser.newContext();
  const answer = await (await stranger.newPage()).goto(port.url());
  assert.ok([401, 403].includes(answer.status()), `a stranger got ${answer.status()}`);

  // Failed, with the server's sentence and the request's id; gone.
  await page.goto(`${BASE}/console/usage?days=900`);
  await page.getByRole("alert").getByText(/400 days/).waitFor();
  await page.getByText(/^request \S+/).waitFor();
  await page.goto(`${BASE}/console/tasks/nosuchid`);
  await page.getByRole("heading", { name: "It is gone" }).waitFor();

  // A server that does not answer for a while: grey lines, then the page.
  await page.goto(`${BASE}/console/board`);
  await page.getByText("Live", { exact: true }).waitFor();
  await ask("freeze");
  await page.getByRole("link", { name: "Sessions" }).first().click();
  await page.getByRole("status", { name: "Loading" }).first().waitFor();
  await ask("thaw");
  await page.getByRole("heading", { level: 1, name: "Sessions" }).waitFor();
  await until(async () => (await page.getByRole("status", { name: "Loading" }).count()) === 0, "the page is there");

  // Somebody new: nothing yet, with one thing to do; and what is not for them.
  const made = await api("POST", "/console/api/keys", { name: "new", user_id: "grace", scopes: ["read", "write"] });
  const theirs = await (await browser.newContext({ viewport: { width: 390, height: 844 } })).newPage();
  await theirs.goto(`${BASE}/console/`);
  await theirs.getByLabel("API key").fill(made.secret);
  await theirs.getByRole("button", { name: "Log in" }).click();
  await theirs.getByRole("heading", { name: "No tasks yet" }).waitFor();
  await theirs.getByRole("main").getByRole("button", { name: "New task" }).last().click();
  await theirs.getByRole("textbox", { name: "What is to be done" }).waitFor();
  await theirs.goto(`${BASE}/console/settings`);
  await theirs.getByRole("heading", { name: "Not for this key" }).waitFor();
});
