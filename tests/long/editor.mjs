// A person at VS Code in the browser: opens a file, changes and saves it, and runs a command in a terminal.
// Variables: URL, CHROMIUM, FILE (its name), TEXT (what is typed at its beginning), COMMAND.
import { createRequire } from "node:module";

const { chromium } = createRequire(new URL("../../web/package.json", import.meta.url))("playwright-core");
const { URL: url, CHROMIUM, FILE, TEXT, COMMAND } = process.env;

const browser = await chromium.launch({
  executablePath: CHROMIUM,
  args: ["--no-sandbox", "--host-resolver-rules=MAP *.localhost 127.0.0.1"],
});
try {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  const sockets = [];
  page.on("websocket", (socket) => sockets.push(socket.url()));
  page.setDefaultTimeout(120_000);
  await page.goto(url);
  await page.waitForSelector(".monaco-workbench .explorer-folders-view .monaco-list-row");
  await page.locator(".explorer-folders-view .monaco-list-row", { hasText: FILE }).dblclick();
  const editor = page.locator(".editor-instance .view-lines").first();
  await editor.waitFor();
  await editor.click();
  await page.keyboard.press("Control+Home");
  await page.keyboard.type(TEXT);
  await page.keyboard.press("Control+S");
  await page.locator(".tab.active:not(.dirty)").waitFor();
  await page.keyboard.press("Control+Backquote");
  await page.locator(".terminal-wrapper .xterm-helper-textarea").first().waitFor({ state: "attached" });
  await page.locator(".terminal-wrapper .xterm-screen").first().click();
  await page.waitForTimeout(1500); // the shell prints its prompt
  await page.keyboard.type(`${COMMAND}\n`, { delay: 5 });
  await page.waitForTimeout(1500);
  if (process.env.SHOT) await page.screenshot({ path: process.env.SHOT });
  console.log(JSON.stringify({ address: page.url(), sockets }));
} catch (error) {
  if (process.env.SHOT) for (const page of browser.contexts()[0].pages()) await page.screenshot({ path: process.env.SHOT });
  throw error;
} finally {
  await browser.close();
}
