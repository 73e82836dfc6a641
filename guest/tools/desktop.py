"""The desktop tools: what an agent sees and does on the screen, where the sandbox has one."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from fastmcp.exceptions import ToolError
from fastmcp.server.providers import Provider
from fastmcp.tools import Tool
from fastmcp.utilities.types import Image
from pydantic import Field

from tools import processes
from tools.texts import cut
from tools.workspace import Workspace, telling

MOST_IMAGE = 4 << 20
MOST_TEXT = 20_000
MOST_WINDOWS = 200
STEP_S = 30.0
TYPE_S = 1800.0
FAST_MS, SLOW_MS = "12", "75"  # between two keys
BUTTONS = {"left": "1", "middle": "2", "right": "3"}
WHEEL = {"up": "4", "down": "5", "left": "6", "right": "7"}
KEYS = {
    "alt": "Alt_L",
    "backspace": "BackSpace",
    "cmd": "Super_L",
    "ctrl": "Control_L",
    "control": "Control_L",
    "delete": "Delete",
    "down": "Down",
    "end": "End",
    "enter": "Return",
    "esc": "Escape",
    "escape": "Escape",
    "home": "Home",
    "left": "Left",
    "page_down": "Page_Down",
    "page_up": "Page_Up",
    "return": "Return",
    "right": "Right",
    "shift": "Shift_L",
    "space": "space",
    "super": "Super_L",
    "tab": "Tab",
    "up": "Up",
    "win": "Super_L",
}
_KEY = re.compile(r"[A-Za-z0-9_]{1,40}")
_WINDOW = re.compile(r"0x[0-9a-f]{1,16}")
X = Annotated[int, Field(ge=0, le=100_000, description="Pixels from the left edge of the screen.")]
Y = Annotated[int, Field(ge=0, le=100_000, description="Pixels from the top.")]


class Desktop(Provider):
    """Looks again at every list: the tools are there when a screen is named to the sandbox (DISPLAY)."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__()
        self._workspace = workspace
        self._tools = [Tool.from_function(function, output_schema=None) for function in self.tools()]

    async def _list_tools(self) -> Sequence[Tool]:
        return self._tools if self._workspace.environment().get("DISPLAY") else ()

    def tools(self) -> Sequence[Any]:
        return (
            self.desktop_screenshot,
            self.desktop_click,
            self.desktop_drag,
            self.desktop_type,
            self.desktop_key,
            self.desktop_scroll,
            self.desktop_windows,
            self.desktop_open,
            self.desktop_record,
        )

    async def desktop_screenshot(self) -> Any:
        """A picture of the screen, with the pointer. Coordinates of the other desktop tools are pixels of it."""
        with tempfile.TemporaryDirectory(prefix="screen-") as place:
            for name, options, kind in (("all.png", (), "png"), ("less.jpg", ("--quality", "60"), "jpeg")):
                path = Path(place) / name
                await self._run("scrot", "--pointer", *options, str(path))
                data = path.read_bytes()
                if len(data) <= MOST_IMAGE:
                    return Image(data=data, format=kind)
        raise ToolError("the picture of the screen is too large; the screen has more pixels than can be sent")

    async def desktop_click(
        self,
        x: X,
        y: Y,
        button: Literal["left", "right", "middle"] = "left",
        count: Annotated[int, Field(ge=1, le=3, description="2 is a double click.")] = 1,
    ) -> str:
        """Click at a place of the screen."""
        await self._on_screen(x, y)
        await self._move(x, y)
        await self._run("xdotool", "click", "--repeat", str(count), "--delay", "60", BUTTONS[button])
        return f"clicked at {x}, {y}"

    async def desktop_drag(self, x: X, y: Y, to_x: X, to_y: Y) -> str:
        """Press the left button at one place, and release it at another."""
        await self._on_screen(x, y)
        await self._on_screen(to_x, to_y)
        await self._move(x, y)
        await self._run("xdotool", "mousedown", "1")
        try:
            await self._move((x + to_x) // 2, (y + to_y) // 2)  # many programs begin a drag only with a second move
            await self._move(to_x, to_y)
        finally:
            await self._run("xdotool", "mouseup", "1")
        return f"dragged from {x}, {y} to {to_x}, {to_y}"

    async def desktop_type(self, text: Annotated[str, Field(min_length=1, max_length=MOST_TEXT)]) -> str:
        """Type into the window that has the focus. A line break presses Enter."""
        if "\0" in text:
            raise ToolError("the text holds NUL characters, for which there is no key")
        await self._run("xdotool", *_typing(text), timeout_s=TYPE_S)
        return f"typed {len(text)} characters"

    async def desktop_key(
        self,
        key: Annotated[
            str, Field(description="For example Enter, Escape, ctrl+c, alt+Tab, F5.", min_length=1, max_length=100)
        ],
    ) -> str:
        """Press a key, or several at once."""
        names = key.split("+")
        if not all(_KEY.fullmatch(name) for name in names):
            raise ToolError(f"{key!r} is no key: name keys as X does (Return, plus, F5), and join them with +")
        await self._run("xdotool", "key", "+".join(KEYS.get(name.lower(), name) for name in names))
        return f"pressed {key}"

    async def desktop_scroll(
        self,
        x: X,
        y: Y,
        direction: Literal["up", "down", "left", "right"] = "down",
        amount: Annotated[int, Field(ge=1, le=100, description="Steps of the wheel.")] = 3,
    ) -> str:
        """Turn the mouse wheel at a place of the screen."""
        await self._on_screen(x, y)
        await self._move(x, y)
        await self._run("xdotool", "click", "--repeat", str(amount), "--delay", "20", WHEEL[direction])
        return f"scrolled {direction} by {amount}"

    async def desktop_windows(
        self,
        action: Literal["list", "activate", "close"] = "list",
        window: Annotated[str | None, Field(description="The id of a window in the list.", max_length=20)] = None,
    ) -> str:
        """List the windows with their places and titles; bring one to the front, or close it."""
        if action != "list":
            if window is None or not _WINDOW.fullmatch(window):
                raise ToolError("window must be an id of the list, such as 0x2a00003")
            await self._run("wmctrl", "-i", "-a" if action == "activate" else "-c", window)
        try:
            listed = await self._run("wmctrl", "-l", "-G", "-x")
        except ToolError:  # a window that closes while it is looked at
            listed = await self._run("wmctrl", "-l", "-G", "-x")
        return cut("\n".join(_windows(listed))) or "no window is open"

    async def desktop_open(
        self,
        target: Annotated[
            str, Field(description="A file, an address, or a program such as xfce4-terminal.", max_length=4000)
        ],
    ) -> str:
        """Open a file or an address with the program that is meant for it, or start a program with a window."""
        if not target or target.startswith("-") or "\0" in target:
            raise ToolError(f"{target!r} is neither a file, nor an address, nor a program")
        is_program = re.fullmatch(r"[A-Za-z0-9_.+-]+", target) and not self._workspace.path(target).exists()
        program = "gtk-launch" if is_program else "xdg-open"
        given = target if is_program or "://" in target else str(self._workspace.path(target))
        await self._run("setsid", "--fork", "timeout", "86400", program, given)
        return f"{target} is being opened; desktop_windows and desktop_screenshot show when it is there"

    async def desktop_record(
        self,
        action: Literal["start", "stop", "status"],
        file: Annotated[
            str | None, Field(description="Ends with .mp4 or .webm; recording.mp4 if left out.", max_length=4000)
        ] = None,
    ) -> str:
        """Record the screen into a video file: start, and stop when enough was seen."""
        words = [str(self._workspace.path(file))] if action == "start" and file else []
        return (await self._run("record-screen", action, *words, timeout_s=2 * STEP_S)).strip()

    async def _move(self, x: int, y: int) -> None:
        await self._run("xdotool", "mousemove", str(x), str(y))

    async def _on_screen(self, x: int, y: int) -> None:
        width, height = (int(word) for word in (await self._run("xdotool", "getdisplaygeometry")).split()[:2])
        if x >= width or y >= height:
            raise ToolError(f"{x}, {y} is not on the screen, which has {width} x {height} pixels")

    async def _run(self, *command: str, timeout_s: float = STEP_S) -> str:
        with telling("run", command[0]):
            ended = await processes.run(
                command,
                cwd=self._workspace.home,
                env=self._workspace.environment(),
                timeout_s=timeout_s,
            )
        if ended.exit_code is None:
            raise ToolError(f"{command[0]} did not end within {timeout_s:.0f} s")
        if ended.exit_code:
            words = cut((ended.stderr or ended.stdout).strip(), 1000)
            raise ToolError(f"{command[0]} failed with {ended.exit_code}: {words}")
        return ended.stdout


def _typing(text: str) -> list[str]:
    """For xdotool, which has no key for a line break in a text.

    For letters that no key has, it changes the keyboard's map, types, and changes it back: a program must have time to see that.
    """
    delay = FAST_MS if text.isascii() else SLOW_MS
    steps: list[str] = []
    for number, line in enumerate(text.split("\n")):
        steps += ["key", "Return"] if number else []
        steps += ["type", "--delay", delay, "--args", "1", "--", line] if line else []
    return steps


def _windows(listed: str) -> list[str]:
    """A line for each window: its id, place, class and title."""
    found = []
    for line in listed.splitlines()[:MOST_WINDOWS]:
        words = line.split(None, 8)
        if len(words) >= 8 and words[1] != "-1":  # -1: on all workspaces, which panels and the desktop itself are
            number, _, x, y, width, height, kind = words[:7]
            title = words[8] if len(words) > 8 else ""
            found.append(f"{number} at {x},{y} size {width}x{height} {kind}: {cut(title, 200)}")
    return found
