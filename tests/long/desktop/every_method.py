"""Tries every method of the released Python SDK for desktops, and prints a line of JSON for each; run where it is installed."""

import json
import os
import time
import traceback
import urllib.request

from e2b_desktop import Sandbox

SIGNATURE = b"\x89PNG\r\n\x1a\n"
SECURITY = """
import socket
line = socket.create_connection(("127.0.0.1", 5900), 10)
assert line.recv(12).startswith(b"RFB 003.")
line.sendall(b"RFB 003.008\\n")
count = line.recv(1)[0]
print(*line.recv(count))
"""
tried = set()


def trying(name, check):
    tried.add(name)
    try:
        check()
        print(json.dumps({"method": name, "ok": True}), flush=True)
    except Exception:
        print(json.dumps({"method": name, "ok": False, "why": traceback.format_exc()[-800:]}), flush=True)


def until(check, seconds=30):
    deadline = time.monotonic() + seconds
    while True:
        try:
            found = check()
            if found:
                return found
        except Exception:
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.3)


class Desk:
    """One desktop with a window that writes down what the mouse does over it."""

    def __init__(self):
        self.box = Sandbox.create(timeout=600)
        self.box.commands.run("xev -event button >/tmp/xev.log", background=True, timeout=0)
        self.window = until(lambda: self.run("xdotool search --name 'Event Tester'").split()[0])
        place = dict(
            line.split("=") for line in self.run(f"xdotool getwindowgeometry --shell {self.window}").splitlines()
        )
        self.x, self.y = int(place["X"]) + 90, int(place["Y"]) + 120

    def run(self, command):
        return self.box.commands.run(command).stdout

    def events(self):
        """What the mouse did since the last time, as (kind, button)."""
        time.sleep(0.5)
        text = self.run("cat /tmp/xev.log; : >/tmp/xev.log").replace("\0", "")
        kinds = [line.split()[0] for line in text.splitlines() if line.startswith("Button")]
        buttons = [line.split("button ")[1].split(",")[0] for line in text.splitlines() if "button " in line]
        return list(zip(kinds, map(int, buttons), strict=True))


def presses(desk):
    return [button for kind, button in desk.events() if kind == "ButtonPress"]


def screen(desk):
    box = desk.box
    trying("get_screen_size", lambda: equal(box.get_screen_size(), (1024, 768)))
    trying("get_cursor_position", lambda: equal(len(box.get_cursor_position()), 2))
    trying("screenshot", lambda: truth(bytes(box.screenshot()).startswith(SIGNATURE)))
    trying("screenshot stream", lambda: truth(b"".join(box.screenshot(format="stream")).startswith(SIGNATURE)))
    trying("wait", lambda: box.wait(50))


def mouse(desk):
    box, x, y = desk.box, desk.x, desk.y

    def move():
        box.move_mouse(x, y)
        equal(box.get_cursor_position(), (x, y))

    def clicked(method, button, times=1):
        method(x, y)
        equal(presses(desk), [button] * times)

    def wheel():
        box.move_mouse(x, y)
        box.scroll("up", 2)
        box.scroll("down", 1)
        equal(presses(desk), [4, 4, 5])

    def held():
        box.mouse_press("left")
        equal(desk.events(), [("ButtonPress", 1)])
        box.mouse_release("left")
        equal(desk.events(), [("ButtonRelease", 1)])

    def dragged():
        box.drag((x, y), (x + 20, y + 10))
        equal(desk.events(), [("ButtonPress", 1), ("ButtonRelease", 1)])
        equal(box.get_cursor_position(), (x + 20, y + 10))

    trying("move_mouse", move)
    trying("left_click", lambda: clicked(box.left_click, 1))
    trying("double_click", lambda: clicked(box.double_click, 1, 2))
    trying("right_click", lambda: clicked(box.right_click, 3))
    trying("middle_click", lambda: clicked(box.middle_click, 2))
    trying("scroll", wheel)
    trying("mouse_press", held)
    trying("mouse_release", lambda: None)
    trying("drag", dragged)
    box.commands.run(f"xdotool windowkill {desk.window}")


def programs(desk):
    box = desk.box

    def opened():
        box.files.write("/home/user/note.txt", "")
        box.open("/home/user/note.txt")
        until(lambda: box.get_application_windows("mousepad"))
        until(lambda: "note.txt" in box.get_window_title(box.get_application_windows("mousepad")[-1]))

    def written():
        window = box.get_application_windows("mousepad")[-1]
        box.commands.run(f"xdotool windowactivate --sync {window}")
        box.write("It's “Grüße” & 42 $HOME; a longer line than one piece.")
        box.press("enter")
        box.press(["ctrl", "s"])
        until(lambda: box.files.read("/home/user/note.txt").strip())
        equal(box.files.read("/home/user/note.txt"), "It's “Grüße” & 42 $HOME; a longer line than one piece.\n")

    def launched():
        named = "firefox" if box.commands.run("/opt/desktop/has-gs || echo no").stdout == "" else "chromium"
        for name, window in (("google-chrome", "google-chrome"), ("firefox-esr", named), ("code", "geany")):
            box.launch(name)
            until(lambda window=window: box.get_application_windows(window), 60)
            box.commands.run("pkill -x 'chromium|firefox-esr|geany'; true")
            until(lambda: box.commands.run("! pgrep -x 'chromium|firefox-esr'").exit_code == 0)

    trying("open", opened)
    trying("get_application_windows", lambda: truth(box.get_application_windows("mousepad")))
    trying("get_window_title", lambda: None)
    trying("write", written)
    trying("press", lambda: None)
    trying("get_current_window_id", lambda: truth(int(box.get_current_window_id())))
    trying("launch", launched)


def stream(desk):
    box = desk.box
    address, host = os.environ["E2B_SANDBOX_URL"], box.get_host(6080)

    def started():
        box.stream.start(require_auth=True)
        request = urllib.request.Request(f"{address}/vnc.html", headers={"Host": host})
        truth(b"noVNC" in urllib.request.urlopen(request, timeout=30).read())
        equal(box.commands.run(f"python3 -c '{SECURITY}'").stdout.split(), ["2"])  # a password, and nothing else

    def told():
        key = box.stream.get_auth_key()
        equal(len(key), 16)
        truth(box.stream.get_url(auth_key=key, view_only=True).startswith(f"https://{host}/vnc.html?"))

    def stopped():
        box.stream.stop()
        until(lambda: box.commands.run("! pgrep -x x11vnc").exit_code == 0)
        box.stream.start(port=6090, window_id=box.get_current_window_id())
        truth("6090-" in box.stream.get_url())
        box.stream.stop()

    trying("stream.start", started)
    trying("stream.get_auth_key", told)
    trying("stream.get_url", lambda: None)
    trying("stream.stop", stopped)
    trying("stream", lambda: None)


def sizes():
    def larger():
        box = Sandbox.create(resolution=(1280, 720), dpi=120, timeout=300)
        try:
            equal(box.get_screen_size(), (1280, 720))
            equal(box.get_cursor_position(), (640, 360))
            truth("resolution:    120x120" in box.commands.run("xdpyinfo").stdout)
            truth(box.commands.run("pgrep -xc xfce4-session").stdout.strip() == "1")
        finally:
            box.kill()

    def elsewhere():
        box = Sandbox.create(display=":7", resolution=(800, 600), timeout=300)
        try:
            equal(box.get_screen_size(), (800, 600))
            truth(bytes(box.screenshot()).startswith(SIGNATURE))
            equal(box.commands.run("pgrep -xa Xvfb").stdout.split()[2], ":7")
        finally:
            box.kill()

    trying("create with a size", larger)
    trying("create with a display", elsewhere)


def equal(found, wanted):
    assert found == wanted, f"{found!r} instead of {wanted!r}"


def truth(found):
    assert found


def every():
    own = {name for name in vars(Sandbox) if not name.startswith("_")} - {"default_template", "create"}
    missing = own - tried
    assert not missing, f"not tried: {sorted(missing)}"


desk = Desk()
try:
    screen(desk)
    mouse(desk)
    programs(desk)
    stream(desk)
finally:
    desk.box.kill()
sizes()
trying("every method", every)
