// Logging in with a key, being refused, logging out, and a key that is revoked while its page is open.
import assert from "node:assert/strict";
import { api, BASE, inBrowser, WAIT } from "./harness.mjs";

await inBrowser(async ({ context }) => {
  const made = await api("POST", "/console/api/keys", { name: "browser", user_id: "ada", scopes: ["read", "write"] });
  const page = await context.newPage();
  await page.goto(`${BASE}/console/`);
  const field = page.getByLabel("API key");
  await field.fill("not-a-key");
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByText(/key/i).filter({ hasText: /not|unknown|valid|wrong/i }).first().waitFor();
  await field.fill(made.secret);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("heading", { name: "Board" }).waitFor();
  const cookies = await context.cookies();
  assert.ok(cookies.every((cookie) => cookie.httpOnly && cookie.sameSite === "Strict"));
  assert.equal(await page.evaluate(() => document.cookie), "");

  await page.getByRole("button", { name: "Account and appearance" }).click();
  await page.getByRole("menuitem", { name: "Log out" }).click();
  await page.getByRole("heading", { name: "Log in to Sandlot" }).waitFor();

  await page.getByLabel("API key").fill(made.secret);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("heading", { name: "Board" }).waitFor();
  await api("DELETE", `/console/api/keys/${made.key.id}`);
  await page.getByRole("heading", { name: "Log in to Sandlot" }).waitFor({ timeout: WAIT * 2 });
});
