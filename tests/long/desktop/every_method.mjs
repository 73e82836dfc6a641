// Tries every method of the released JavaScript SDK for desktops, and prints a line of JSON for each; run where it is installed.
import assert from "node:assert/strict";
import { Sandbox as Plain } from "e2b";
import { Sandbox } from "@e2b/desktop";

const PNG = Buffer.from([0x89, 0x50, 0x4e, 0x47]);
const tried = new Set();
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function trying(name, check) {
  tried.add(name);
  try {
    await check();
    console.log(JSON.stringify({ method: name, ok: true }));
  } catch (error) {
    console.log(JSON.stringify({ method: name, ok: false, why: String(error?.stack ?? error).slice(-800) }));
  }
}

async function until(check, seconds = 60) {
  const deadline = Date.now() + seconds * 1000;
  for (;;) {
    try {
      const found = await check();
      if (found) return found;
    } catch (error) {
      if (Date.now() > deadline) throw error;
    }
    if (Date.now() > deadline) throw new Error("it did not come true");
    await pause(300);
  }
}

const box = await Sandbox.create("desktop", { timeoutMs: 900_000 });
const run = async (command) => (await box.commands.run(command)).stdout;
let x = 0;
let y = 0;

async function events() {
  await pause(500);
  const text = (await run("cat /tmp/xev.log; : >/tmp/xev.log")).replaceAll("\0", "");
  const kinds = text.split("\n").filter((line) => line.startsWith("Button")).map((line) => line.split(" ")[0]);
  const buttons = [...text.matchAll(/button (\d+),/g)].map((match) => Number(match[1]));
  return kinds.map((kind, n) => [kind, buttons[n]]);
}
const presses = async () => (await events()).filter(([kind]) => kind === "ButtonPress").map(([, button]) => button);

async function mouse() {
  await box.commands.run("xev -event button >/tmp/xev.log", { background: true, timeoutMs: 0 });
  const window = (await until(() => run("xdotool search --name 'Event Tester'"))).split("\n")[0];
  const place = Object.fromEntries((await run(`xdotool getwindowgeometry --shell ${window}`)).trim().split("\n").map((line) => line.split("=")));
  [x, y] = [Number(place.X) + 90, Number(place.Y) + 120];
  await trying("moveMouse", async () => {
    await box.moveMouse(x, y);
    assert.deepEqual(await box.getCursorPosition(), { x, y });
  });
  await trying("getCursorPosition", async () => {});
  for (const [name, buttons] of [["leftClick", [1]], ["doubleClick", [1, 1]], ["rightClick", [3]], ["middleClick", [2]]]) {
    await trying(name, async () => {
      await box[name](x, y);
      assert.deepEqual(await presses(), buttons);
    });
  }
  await trying("scroll", async () => {
    await box.scroll("up", 2);
    await box.scroll("down", 1);
    assert.deepEqual(await presses(), [4, 4, 5]);
  });
  await trying("mousePress", async () => {
    await box.mousePress("left");
    assert.deepEqual(await events(), [["ButtonPress", 1]]);
  });
  await trying("mouseRelease", async () => {
    await box.mouseRelease("left");
    assert.deepEqual(await events(), [["ButtonRelease", 1]]);
  });
  await trying("drag", async () => {
    await box.drag([x, y], [x + 20, y + 10]);
    assert.deepEqual(await events(), [["ButtonPress", 1], ["ButtonRelease", 1]]);
  });
  await box.commands.run(`xdotool windowkill ${window}`);
}

async function screen() {
  await trying("getScreenSize", async () => assert.deepEqual(await box.getScreenSize(), { width: 1024, height: 768 }));
  await trying("screenshot", async () => {
    assert.ok(Buffer.from(await box.screenshot()).subarray(0, 4).equals(PNG));
    assert.ok(Buffer.from(await (await box.screenshot("blob")).arrayBuffer()).subarray(0, 4).equals(PNG));
    for await (const piece of await box.screenshot("stream")) {
      assert.ok(Buffer.from(piece).subarray(0, 4).equals(PNG));
      break;
    }
  });
  await trying("wait", () => box.wait(50));
  await trying("waitAndVerify", async () => assert.equal(await box.waitAndVerify("true", (result) => result.exitCode === 0), true));
}

async function programs() {
  await trying("open", async () => {
    await box.files.write("/home/user/note.txt", "");
    await box.open("/home/user/note.txt");
    await until(async () => (await box.getWindowTitle((await box.getApplicationWindows("mousepad")).at(-1))).includes("note.txt"));
  });
  await trying("getApplicationWindows", async () => assert.ok((await box.getApplicationWindows("mousepad")).length));
  await trying("getWindowTitle", async () => {});
  await trying("write", async () => {
    await box.commands.run(`xdotool windowactivate --sync ${(await box.getApplicationWindows("mousepad")).at(-1)}`);
    await box.write("It's “Grüße” & 42 $HOME; a longer line than one piece.");
    await box.press("enter");
    await box.press(["ctrl", "s"]);
    await until(() => box.files.read("/home/user/note.txt"));
    assert.equal(await box.files.read("/home/user/note.txt"), "It's “Grüße” & 42 $HOME; a longer line than one piece.\n");
  });
  await trying("press", async () => {});
  await trying("getCurrentWindowId", async () => assert.ok(Number(await box.getCurrentWindowId())));
  await trying("launch", async () => {
    await box.launch("google-chrome", "about:blank");
    await until(() => box.getApplicationWindows("google-chrome"));
  });
}

async function stream() {
  await trying("stream.start", async () => {
    await box.stream.start({ requireAuth: true });
    assert.ok((await run("curl -fsS http://127.0.0.1:6080/vnc.html")).includes("noVNC"));
  });
  await trying("stream.getUrl", async () => {
    const key = box.stream.getAuthKey();
    assert.equal(key.length, 16);
    assert.ok(box.stream.getUrl({ authKey: key, viewOnly: true }).startsWith(`https://${box.getHost(6080)}/vnc.html?`));
  });
  await trying("stream.stop", async () => {
    await box.stream.stop();
    await until(async () => (await box.commands.run("! pgrep -x x11vnc")).exitCode === 0);
  });
}

try {
  await screen();
  await mouse();
  await programs();
  await stream();
} finally {
  await box.kill();
}
await trying("create with a size", async () => {
  const larger = await Sandbox.create("desktop", { resolution: [1280, 720], dpi: 120, timeoutMs: 300_000 });
  try {
    assert.deepEqual(await larger.getScreenSize(), { width: 1280, height: 720 });
  } finally {
    await larger.kill();
  }
});
await trying("every method", async () => {
  const internal = new Set(["constructor", "startXfce4", "breakIntoChunks", "quoteString"]);
  const own = Object.getOwnPropertyNames(Sandbox.prototype).filter((name) => !name.startsWith("_") && !internal.has(name) && !(name in Plain.prototype));
  assert.deepEqual(own.filter((name) => !tried.has(name)), []);
});
