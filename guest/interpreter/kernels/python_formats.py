"""What IPython adds to results in our kernels: data of tables, data of charts, JSON of lists and dicts, saved pictures."""

from __future__ import annotations

import functools
import json
import math
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from IPython.core.formatters import BaseFormatter, JSONFormatter
from traitlets import ObjectName, Unicode

MAX_TABLE_CELLS = 1_000_000  # a larger table is shown, but its data is not sent along
MAX_JSON = 8 << 20


def install(shell: Any, charts: Callable[[], ModuleType]) -> None:
    formatters = shell.display_formatter.formatters
    parent = shell.display_formatter
    formatters["e2b/data"] = TableFormatter(parent=parent)
    formatters["e2b/chart"] = ChartFormatter(parent=parent, charts=functools.cache(charts))
    formatters["application/json"] = PlainJSONFormatter(parent=parent)
    _show_pictures()


class TableFormatter(BaseFormatter):  # type: ignore[misc]  # untyped library
    """DataFrames as columns of plain values."""

    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = (dict, str)

    def __call__(self, value: Any) -> Any:
        # Only those who imported pandas have a DataFrame; others do not pay for the import.
        pandas: Any = sys.modules.get("pandas")
        if pandas is None or not isinstance(value, getattr(pandas, "DataFrame", type(None))):
            return super().__call__(value)
        table: Any = value
        if table.size > MAX_TABLE_CELLS:
            return None
        try:
            return {str(name): [_plain(item) for item in column.tolist()] for name, column in table.items()}
        except Exception:  # cells of a table can be anything; that it is shown matters more than its data
            return None


def _plain(value: Any) -> Any:
    """A value that JSON has; not-a-number and not-a-time are null."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "tolist"):  # numbers and arrays of numpy, whose widest numbers have no other form than their own
        plain = value.tolist()
        return str(value) if type(plain) is type(value) else _plain(plain)
    if isinstance(value, list | tuple | set):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return str(value)


class ChartFormatter(BaseFormatter):  # type: ignore[misc]  # untyped library
    """Figures of matplotlib as data that can be drawn again."""

    format_type = Unicode("e2b/chart")
    print_method = ObjectName("_repr_e2b_chart_")
    _return_type = (dict, str)

    def __init__(self, *, charts: Callable[[], ModuleType], **options: Any) -> None:
        super().__init__(**options)
        self._charts = charts

    def __call__(self, value: Any) -> Any:
        figures = sys.modules.get("matplotlib.figure")
        if figures is None or not isinstance(value, getattr(figures, "Figure", ())):
            return super().__call__(value)
        try:
            return self._charts().describe(value)
        except Exception:  # the picture matters more than its data
            return None


class PlainJSONFormatter(JSONFormatter):  # type: ignore[misc]  # untyped library
    """Lists and dicts have a JSON form too, where all of their content has one."""

    def __call__(self, value: Any) -> Any:
        if type(value) in (list, dict):
            text = _json(value)
            if text is not None and len(text) <= MAX_JSON:
                return json.loads(text), {"expanded": True}
            return None
        return super().__call__(value)


def _json(value: Any) -> bytes | None:
    try:
        import orjson
    except ImportError:
        try:
            return json.dumps(value, allow_nan=False).encode()
        except (TypeError, ValueError):
            return None
    try:
        return bytes(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS))
    except (TypeError, RecursionError):
        return None


def _show_pictures() -> None:
    """There is no screen: a picture that is shown or saved to a file becomes a result."""
    try:
        from PIL import Image, ImageShow
    except ImportError:
        return
    from IPython.display import display

    save = Image.Image.save

    @functools.wraps(save)
    def save_and_show(image: Any, fp: Any, format: str | None = None, **options: Any) -> None:
        save(image, fp, format, **options)
        if isinstance(fp, str | os.PathLike):
            display(image)

    class Results(ImageShow.Viewer):  # type: ignore[misc]  # untyped library
        def show(self, image: Any, **options: Any) -> int:
            display(image)
            return 1

    Image.Image.save = save_and_show
    ImageShow.register(Results(), order=0)
