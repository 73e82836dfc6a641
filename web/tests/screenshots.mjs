// Screenshots of every page in both themes, on a desktop and on a phone: node screenshots.mjs DIR, with CONSOLE_URL and CONSOLE_LINK.
import { mkdir } from "node:fs/promises";
import { BASE, inBrowser } from "./harness.mjs";
import { pagesOf, show, SIZES, THEMES } from "./pages.mjs";

const directory = process.argv[2];
await mkdir(directory, { recursive: true });
await inBrowser(async ({ context }) => {
  const page = await context.newPage();
  await page.goto(`${BASE}/console/`);
  await page.getByRole("heading", { name: "Log in to Sandlot" }).waitFor();
  for (const theme of THEMES) {
    await page.emulateMedia({ colorScheme: theme, reducedMotion: "reduce" });
    await page.screenshot({ path: `${directory}/desktop-${theme}-login.png` });
  }
  await page.goto(process.env.CONSOLE_LINK);
  const pages = await pagesOf(page);
  for (const [size, viewport] of Object.entries(SIZES)) {
    await page.setViewportSize(viewport);
    for (const theme of THEMES) {
      await page.emulateMedia({ colorScheme: theme, reducedMotion: "reduce" });
      for (const { name, path } of pages) {
        await show(page, path);
        await page.screenshot({ path: `${directory}/${size}-${theme}-${name}.png` });
        process.stdout.write(`${size}-${theme}-${name}.png\n`);
      }
    }
  }
});
