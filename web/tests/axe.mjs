// axe (WCAG 2.2 A and AA) finds nothing on any page, in both themes on a desktop, and on a phone.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { inBrowser, loggedIn } from "./harness.mjs";
import { pagesOf, show, SIZES, THEMES, unseen } from "./pages.mjs";

const source = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
await inBrowser(async ({ context }) => {
  const page = await loggedIn(context);
  const pages = await pagesOf(page);
  assert.deepEqual(await unseen(pages), [], "every page of the registry is looked at");
  const found = new Map(); // each kind of finding once, with the pages that have it
  for (const [size, viewport] of Object.entries(SIZES)) {
    await page.setViewportSize(viewport);
    for (const theme of size === "phone" ? THEMES.slice(0, 1) : THEMES) {
      await page.emulateMedia({ colorScheme: theme, reducedMotion: "reduce" });
      for (const { name, path } of pages) {
        await show(page, path);
        await page.evaluate(source);
        const { violations } = await page.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"] }));
        for (const each of violations) {
          const nodes = each.nodes.slice(0, 3).map((node) => `    ${node.html.slice(0, 250)}\n      ${[...node.any, ...node.all, ...node.none].map((one) => one.message).join("; ").slice(0, 250)}`).join("\n");
          const known = found.get(each.id) ?? { text: `${each.id}: ${each.help}\n${nodes}`, pages: [] };
          found.set(each.id, { ...known, pages: [...known.pages, `${size} ${theme} ${name}`] });
        }
      }
    }
  }
  if (found.size) throw new Error([...found.values()].map(({ text, pages: on }) => `${text}\n    on ${on.join(", ")}`).join("\n"));
});
