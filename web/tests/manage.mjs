// Sandboxes started, paused, resumed and ended from their pages; keys, templates, repositories, usage and settings are shown.
import assert from "node:assert/strict";
import { BASE, inBrowser, loggedIn, WAIT } from "./harness.mjs";

await inBrowser(async ({ context }) => {
  const page = await loggedIn(context, "/templates");
  await page.getByRole("row", { name: /base/ }).getByRole("button", { name: "Start one" }).click();
  await page.waitForURL(/\/console\/sandboxes\/sbx_/, { timeout: WAIT * 2 });
  const title = page.getByRole("heading", { level: 1, name: /^base-/ });
  await title.waitFor();
  const name = await title.innerText();
  await page.getByText("Session: ready").waitFor();

  await page.goto(`${BASE}/console/sandboxes`);
  await page.getByLabel(`Select ${name}`).check();
  await page.getByRole("toolbar", { name: "Selected sandboxes" }).getByRole("button", { name: "Pause" }).click();
  await page.getByRole("row", { name }).getByText("Paused").waitFor();
  await page.getByRole("link", { name }).click();
  await page.getByRole("button", { name: "Resume" }).click();
  await page.getByRole("button", { name: "Pause" }).waitFor();
  await page.getByRole("button", { name: "More acts" }).click();
  await page.getByRole("menuitem", { name: "End it…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "End" }).click();
  await page.getByRole("heading", { name: "Why it ended" }).waitFor();
  await page.getByText("Deleted by its user.").waitFor();

  await page.goto(`${BASE}/console/keys`);
  await page.getByRole("button", { name: "New key" }).first().click();
  await page.getByLabel("Name").fill("from the browser");
  await page.getByLabel("Whose").fill("ada");
  await page.getByRole("button", { name: "Make it" }).click();
  await page.getByText("It is shown this once.").waitFor();
  assert.match(await page.getByLabel("Key", { exact: true }).innerText(), /slp_/);
  await page.keyboard.press("Escape");
  const row = page.getByRole("row", { name: /from the browser/ });
  await row.getByRole("button", { name: "Revoke" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Revoke" }).click();
  await row.waitFor({ state: "detached" });

  for (const [path, words] of [["/repositories/app", "Pull requests"], ["/usage", "Usage"], ["/sessions", "Sessions"], ["/settings", "Providers"]]) {
    await page.goto(`${BASE}/console${path}`);
    await page.getByRole("heading", { name: words }).first().waitFor();
  }
});
