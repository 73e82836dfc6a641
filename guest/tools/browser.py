"""The browser tools: what an agent does with pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastmcp.exceptions import ToolError
from fastmcp.utilities.types import Image
from pydantic import Field

from tools.chromium import Chromium
from tools.texts import cut

MOST_SNAPSHOT = 40_000
MOST_IMAGE = 4 << 20
MOST_TABS = 20
LOAD_MS = 30_000
SETTLE_MS = 3_000
REACT_MS = 150
TO_THE_END = """field => {
    field.focus();
    try { field.setSelectionRange(field.value.length, field.value.length) } catch {}  // a field for numbers has no selection
}"""
_REF = re.compile(r"(?:f\d+)?e\d+")
Target = Annotated[
    str,
    Field(
        description="What to act on: a ref of browser_snapshot such as e12, a CSS selector, or text=Some words.",
        min_length=1,
        max_length=2000,
    ),
]


class Browser:
    def __init__(self, chromium: Chromium) -> None:
        self._chromium = chromium

    def tools(self) -> Sequence[Any]:
        return (
            self.browser_navigate,
            self.browser_snapshot,
            self.browser_click,
            self.browser_type,
            self.browser_press,
            self.browser_scroll,
            self.browser_tabs,
            self.browser_screenshot,
            self.browser_wait,
        )

    async def browser_navigate(
        self,
        url: Annotated[str, Field(description="Or: back, forward, reload.", min_length=1, max_length=8000)],
    ) -> str:
        """Go to an address in the tab in front; answers with what is on the page."""
        async with self._chromium.page() as page:
            if url in ("back", "forward", "reload"):
                moves = {"back": page.go_back, "forward": page.go_forward, "reload": page.reload}
                answer = await moves[url](timeout=LOAD_MS, wait_until="domcontentloaded")
            else:
                address = url if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:(?!\d)", url) else f"http://{url}"
                answer = await page.goto(address, timeout=LOAD_MS, wait_until="domcontentloaded")
            status = f"status {answer.status}\n" if answer is not None else ""
            return status + await _seen(page)

    async def browser_snapshot(self) -> str:
        """What is on the page, as a tree of its elements; each has a ref to click or type into."""
        async with self._chromium.page() as page:
            return await _seen(page)

    async def browser_click(
        self,
        target: Target,
        button: Literal["left", "right", "middle"] = "left",
        double: bool = False,
    ) -> str:
        """Click on an element; answers with what is on the page then."""
        async with self._chromium.page() as page:
            await _found(page, target).click(button=button, click_count=2 if double else 1)
            return await self._after(page)

    async def browser_type(
        self,
        target: Target,
        text: Annotated[str, Field(max_length=100_000)],
        append: Annotated[bool, Field(description="Keep what is in the field.")] = False,
        submit: Annotated[bool, Field(description="Press Enter afterwards.")] = False,
    ) -> str:
        """Type into a field, instead of what was in it."""
        async with self._chromium.page() as page:
            field = _found(page, target)
            if append:
                await field.evaluate(TO_THE_END)
                await field.press_sequentially(text)
            else:
                await field.fill(text)
            if submit:
                await field.press("Enter")
            return await self._after(page)

    async def browser_press(
        self,
        key: Annotated[str, Field(description="For example Enter, Escape, ArrowDown, Control+A.", max_length=50)],
        target: Annotated[str | None, Field(description="Where; left out: what has the focus.")] = None,
    ) -> str:
        """Press a key."""
        async with self._chromium.page() as page:
            if target:
                await _found(page, target).press(key)
            else:
                await page.keyboard.press(key)
            return await self._after(page)

    async def browser_scroll(
        self,
        down: Annotated[int, Field(ge=-100_000, le=100_000, description="Pixels; less than 0 is up.")] = 600,
        right: Annotated[int, Field(ge=-100_000, le=100_000)] = 0,
        target: Annotated[str | None, Field(description="Scroll until this element is seen, instead.")] = None,
    ) -> str:
        """Scroll the page."""
        async with self._chromium.page() as page:
            if target:
                await _found(page, target).scroll_into_view_if_needed()
            else:
                await page.evaluate("([x, y]) => window.scrollBy(x, y)", [right, down])
            where = await page.evaluate(
                "() => [window.scrollY, window.innerHeight, document.documentElement.scrollHeight].map(Math.round)"
            )
            top, height, whole = (int(number) for number in where)
            return f"the page is seen from {top} to {top + height} of {whole} pixels"

    async def browser_tabs(
        self,
        action: Literal["list", "new", "select", "close"] = "list",
        index: Annotated[int | None, Field(ge=0, description="Which tab to select or close.")] = None,
        url: Annotated[str | None, Field(description="Where a new tab goes.", max_length=8000)] = None,
    ) -> str:
        """List, open, select and close tabs."""
        async with self._chromium.page() as page:
            front = page
            if action == "new":
                if len(await self._chromium.tabs()) >= MOST_TABS:
                    raise ToolError(f"{MOST_TABS} tabs are open already; close one first")
                front = await self._chromium.new_tab()
                if url:
                    await front.goto(url, timeout=LOAD_MS, wait_until="domcontentloaded")
            elif action in ("select", "close"):
                front = await self._chosen(action, index, page)
            return await self._listed(front)

    async def _chosen(self, action: str, index: int | None, front: Any) -> Any:
        tabs = await self._chromium.tabs()
        if index is None or index >= len(tabs):
            raise ToolError(f"index must name one of the {len(tabs)} tabs, from 0 on")
        if action == "select":
            self._chromium.show(tabs[index])
            await tabs[index].bring_to_front()
            return tabs[index]
        await tabs[index].close()
        left = await self._chromium.tabs()
        front = front if front in left else (left[-1] if left else await self._chromium.new_tab())
        self._chromium.show(front)
        return front

    async def _listed(self, front: Any) -> str:
        lines = []
        for number, tab in enumerate(await self._chromium.tabs()):
            mark = "*" if tab is front else " "
            lines.append(f"{number}{mark} {cut(await tab.title(), 200)} {cut(tab.url, 500)}")
        return "\n".join(lines)

    async def browser_screenshot(
        self,
        full_page: Annotated[bool, Field(description="All of the page, not only what is seen.")] = False,
        target: Annotated[str | None, Field(description="Only this element.")] = None,
    ) -> Any:
        """A picture of the page."""
        async with self._chromium.page() as page:
            if target:
                data = await _found(page, target).screenshot(type="png")
            else:
                data = await page.screenshot(type="png", full_page=full_page)
            if len(data) <= MOST_IMAGE:
                return Image(data=data, format="png")
            data = await page.screenshot(type="jpeg", quality=60, full_page=full_page)
            if len(data) > MOST_IMAGE:
                raise ToolError("the picture is too large; take one of what is seen, or of one element")
            return Image(data=data, format="jpeg")

    async def browser_wait(
        self,
        seconds: Annotated[float, Field(gt=0, le=120, description="How long, or at most how long.")] = 10.0,
        text: Annotated[str | None, Field(description="Until this text is on the page.", max_length=2000)] = None,
        target: Annotated[str | None, Field(description="Until this element is seen.", max_length=2000)] = None,
        gone: Annotated[bool, Field(description="Until the text or element is gone.")] = False,
    ) -> str:
        """Wait for something on the page, or simply for a while."""
        async with self._chromium.page() as page:
            if text is None and target is None:
                await page.wait_for_timeout(seconds * 1000)
            else:
                awaited = _found(page, target) if target is not None else page.get_by_text(text)
                await awaited.first.wait_for(state="hidden" if gone else "visible", timeout=seconds * 1000)
            return await _seen(page)

    async def _after(self, page: Any) -> str:
        """What is in front once the page has reacted: a click may have opened a tab, or closed this one."""
        if not page.is_closed():
            await page.wait_for_timeout(REACT_MS)
        front = await self._chromium.front()
        tabs = await self._chromium.tabs()
        where = f"tab {tabs.index(front)} of {len(tabs)}, from 0 on\n" if len(tabs) > 1 else ""
        return where + await _seen(front)


async def _seen(page: Any) -> str:
    try:
        await page.wait_for_load_state("load", timeout=SETTLE_MS)
    except Exception as error:
        if type(error).__name__ != "TimeoutError":  # a page that never ends loading can be looked at all the same
            raise
    tree = await page.aria_snapshot(mode="ai")
    return f"{cut(await page.title(), 500)}\n{cut(page.url, 2000)}\n\n{cut(tree, MOST_SNAPSHOT)}"


def _found(page: Any, target: str) -> Any:
    return page.locator(f"aria-ref={target}" if _REF.fullmatch(target) else target)
