// The Screen tab: the desktop is drawn, cannot be used by who only looks, and is used by who takes control; others are told that there is none.
import assert from "node:assert/strict";
import { ask, BASE, GIVEN, inBrowser, loggedIn, until } from "./harness.mjs";

await inBrowser(async ({ context }) => {
  const page = await loggedIn(context);
  await page.goto(`${BASE}/console/sandboxes/${GIVEN.desktop}?tab=screen`);
  await page.getByText("Looking on").waitFor();
  const canvas = page.locator("canvas").first();
  await canvas.waitFor();
  const colours = () =>
    canvas.evaluate((each) => {
      const { data } = each.getContext("2d").getImageData(0, 0, each.width, each.height);
      const found = new Set();
      for (let at = 0; at < data.length; at += 4 * 997) found.add((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]);
      return found.size;
    });
  await until(async () => (await colours()) > 30, "the desktop's picture");
  assert.deepEqual(await canvas.evaluate((each) => [each.width, each.height]), [1024, 768]);
  const at = async (x, y) => {
    const box = await canvas.boundingBox();
    return [box.x + (x * box.width) / 1024, box.y + (y * box.height) / 768];
  };

  const before = await ask("pointer");
  await page.mouse.click(...(await at(300, 200)));
  await page.waitForTimeout(1500);
  assert.deepEqual(await ask("pointer"), before, "who looks on moves nothing");

  await page.getByLabel("Take control").check({ force: true });
  await page.getByText("You are in control").waitFor();
  await until(async () => (await colours()) > 30, "the desktop's picture");
  await page.mouse.move(...(await at(500, 300)));
  await page.mouse.click(...(await at(512, 384)));
  await until(async () => Math.abs((await ask("pointer"))[0] - 512) < 3, "the pointer");
  await page.keyboard.type("typed by a person", { delay: 30 });
  await page.keyboard.press("Control+s");
  await until(async () => (await ask("text")).includes("typed by a person"), "the text in the sandbox");
  if (GIVEN.picture) await page.screenshot({ path: GIVEN.picture });

  await page.goto(`${BASE}/console/sandboxes/${GIVEN.plain}?tab=screen`);
  await page.getByRole("heading", { name: "No screen to show" }).waitFor();
  await page.getByText("the template 'desktop' has one").waitFor();
});
