// A real task of the scripted agent, by the form and on its page: question, changes, review, terminal, files; then it is done.
import assert from "node:assert/strict";
import { api, BASE, inBrowser, loggedIn, until } from "./harness.mjs";

const LONG = 120_000; // a sandbox has to start, and an agent to work
const PROMPT = `Write a greeting
\`\`\`script
say I will ask first.
run echo seen-in-the-timeline
ask Which colour? | red | green
turn
write hello.txt <<END
hello
{prompt}
END
done The greeting is there.
turn
write review.txt <<END
{prompt}
END
done The review is worked in.
\`\`\``;

await inBrowser(async ({ context }) => {
  const page = await loggedIn(context, "/new");
  await page.getByRole("textbox", { name: "What is to be done" }).fill(PROMPT);
  await page.getByRole("combobox", { name: "Repository" }).click();
  await page.getByRole("option", { name: "app", exact: true }).click();
  await page.getByRole("combobox", { name: "Agent" }).click();
  await page.getByRole("option", { name: /script/i }).click();
  assert.match(await page.getByRole("complementary", { name: /The same/ }).innerText(), /task create[\s\S]*app[\s\S]*--agent scripted/);
  await page.getByRole("button", { name: "Start the task" }).click();
  await page.getByRole("heading", { name: "Write a greeting" }).waitFor();
  const id = /tasks\/(\w+)/.exec(page.url())[1];
  const log = page.getByRole("log", { name: "Timeline" });
  await log.getByText("seen-in-the-timeline").first().waitFor({ timeout: LONG });

  // A reload in the middle of the stream shows each entry once.
  await page.reload();
  await log.getByText("I will ask first.").waitFor();
  assert.equal(await log.getByText("I will ask first.").count(), 1);
  await log.getByRole("button", { name: "green" }).click({ timeout: LONG });

  // The change is there, and a comment on it goes back to the agent.
  await until(async () => (await api("GET", `/tasks/${id}`)).state === "review", "the task is in review").catch(async () => {
    await until(async () => (await api("GET", `/tasks/${id}`)).state === "review", "the task is in review");
  });
  const changes = page.getByRole("region", { name: "hello.txt" });
  await changes.getByText("green").first().waitFor({ timeout: LONG });
  const row = changes.locator("tr").filter({ hasText: "hello" }).first();
  await row.hover();
  await row.getByRole("button", { name: "Comment on line 1" }).click();
  await page.getByLabel("Comment", { exact: true }).fill("Say it in French");
  await page.getByRole("button", { name: "Add to the review" }).click();
  await page.getByRole("button", { name: "Send 1 comment to the agent" }).click();
  await page.getByRole("region", { name: "review.txt" }).getByText("Say it in French").waitFor({ timeout: LONG });

  // A shell in its sandbox, that a reload takes up again.
  await page.getByRole("tab", { name: "Terminal" }).click();
  const resume = page.getByRole("button", { name: "Resume it" });
  const screen = page.locator(".xterm-screen");
  await screen.or(resume).first().waitFor();
  if (await resume.isVisible()) await resume.click();
  const lines = () => page.locator(".xterm-rows").innerText();
  await until(async () => /[$#]/.test(await lines()), "the shell is ready");
  await screen.click();
  await page.keyboard.type("cd /tmp && kept=$((40+2)) && echo is-$kept\n");
  await until(async () => (await lines()).includes("is-42"), "the shell answers");
  await page.reload();
  await until(async () => /[$#]/.test(await lines()), "the shell is there again");
  await screen.click();
  await page.keyboard.type("echo still-$kept\n");
  await until(async () => (await lines()).includes("still-42"), "it is the same shell");
  const before = await page.evaluate(() => document.querySelector(".xterm-rows").children.length);
  await page.setViewportSize({ width: 1440, height: 600 });
  await until(async () => (await page.evaluate(() => document.querySelector(".xterm-rows").children.length)) < before, "the shell has another size");
  await page.setViewportSize({ width: 1440, height: 900 });

  // A file, edited here and read by the shell's side.
  const { sandbox_id: sandbox } = await api("GET", `/tasks/${id}`);
  await page.getByRole("tab", { name: "Files" }).click();
  await page.getByLabel("Folder", { exact: true }).fill("/tmp");
  const file = `/console/api/sandboxes/${sandbox}/file?path=/tmp/edited.txt`;
  await fetch(`${BASE}${file}`, { method: "PUT", headers: { "x-api-key": process.env.CONSOLE_KEY }, body: "one\n" });
  await page.getByLabel("Folder", { exact: true }).press("Enter");
  await page.getByRole("button", { name: /edited\.txt/ }).first().click();
  const text = page.getByLabel("Content of edited.txt");
  await until(async () => (await text.inputValue()) === "one\n", "the file is shown");
  await text.fill("two\n");
  await page.getByRole("button", { name: "Save" }).click();
  await until(async () => (await (await fetch(`${BASE}${file}`, { headers: { "x-api-key": process.env.CONSOLE_KEY } })).text()) === "two\n", "the file was saved");

  await page.getByRole("button", { name: "Done", exact: true }).click();
  await until(async () => (await api("GET", `/tasks/${id}`)).state === "done", "the task is done");
  await log.getByText("The review is worked in.").first().waitFor();
});
