"""Data of matplotlib figures, in the shape that the SDKs' chart classes read."""

from __future__ import annotations

import datetime
import itertools
import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy
from matplotlib import dates
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.container import BarContainer
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch, Rectangle, Wedge
from matplotlib.text import Text

UNIT = re.compile(r"\s\((.*?)\)|\[(.*?)\]")
AUTOMATIC_LABEL = re.compile(r"_(?:child|container)(\d+)")
DIGITS = 9  # of a number read back from a drawing, which carries the noise of its transformations

Chart = dict[str, Any]


def describe(figure: Any) -> Chart | None:
    """The chart of a figure; a superchart when it has several; None when nothing is drawn."""
    axes = figure.get_axes()
    if not any(ax.has_data() or ax.artists or ax.patches for ax in axes):
        return None
    if len(axes) == 1:
        return _chart(axes[0])
    title = figure.get_suptitle() or None
    return {"type": "superchart", "title": title, "elements": [_chart(ax) for ax in axes]}


def _chart(ax: Any) -> Chart:
    kind = _kind(ax)
    return KINDS[kind](ax) if kind in KINDS else {"type": "unknown", "title": _title(ax), "elements": []}


def _kind(ax: Any) -> str:
    """Told by what was drawn, leaving texts, bands around lines and straight helper lines aside."""
    if ax.name == "3d":
        return "unknown"  # no chart has a third axis
    drawn = [artist for artist in ax._children if not isinstance(artist, Text)]
    if any(isinstance(artist, Line2D) and _is_curve(artist) for artist in drawn):
        drawn = [artist for artist in drawn if not isinstance(artist, PolyCollection)]
    if all(isinstance(artist, Line2D) for artist in drawn):
        return "box_and_whisker" if _are_boxes(drawn) else "line"
    if all(isinstance(artist, PathPatch | Line2D) for artist in drawn):
        return "box_and_whisker"
    drawn = [artist for artist in drawn if not (isinstance(artist, Line2D) and _is_straight(artist))]
    if all(isinstance(artist, PathCollection) for artist in drawn):
        return "scatter"
    if all(isinstance(artist, Wedge) for artist in drawn):
        return "pie"
    bars = {bar for container in _bar_containers(ax) for bar in container}
    errors = {line for container in ax.containers for line in _error_lines(container)}
    if bars and all(isinstance(artist, Rectangle) for artist in drawn if artist not in errors):
        return "bar"
    return "unknown"


def _is_straight(line: Any) -> bool:
    """A horizontal or vertical line between two points: a grid, a threshold, a mean."""
    x, y = line.get_xdata(), line.get_ydata()
    return len(x) == 2 and len(y) == 2 and bool(x[0] == x[1] or y[0] == y[1])


def _is_curve(line: Any) -> bool:
    """More than dots, and than the straight lines within a violin."""
    return len(line.get_xdata()) > 1 and line.get_linestyle() != "None" and not _is_straight(line)


def _are_boxes(lines: Sequence[Any]) -> bool:
    """Boxes can be drawn as lines: each comes with a median and two whiskers, and nothing else is there but dots."""
    boxes = [line for line in lines if _is_box(line)]
    straight = [line for line in lines if len(line.get_xdata()) == 2 and _is_straight(line)]
    dots = [line for line in lines if line.get_linestyle() == "None"]
    return bool(boxes) and len(straight) >= 3 * len(boxes) and len(boxes + straight + dots) == len(lines)


def _is_box(line: Any) -> bool:
    """A rectangle that ends where it began."""
    x, y = line.get_xdata(), line.get_ydata()
    if len(x) != 5 or x[0] != x[4] or y[0] != y[4]:
        return False
    return bool(x[1] == x[2] and x[3] == x[4] and y[0] == y[1] and y[2] == y[3]) or bool(
        y[1] == y[2] and y[3] == y[4] and x[0] == x[1] and x[2] == x[3]
    )


def _title(ax: Any) -> str | None:
    return ax.get_title() or None


def _flat(ax: Any, kind: str, *, swap: bool = False) -> Chart:
    """What every chart with two axes has. Bars that lie on their side are described as if they stood."""
    labels = [ax.get_xlabel() or None, ax.get_ylabel() or None]
    if swap:
        labels.reverse()
    x, y = labels
    chart = {"type": kind, "title": _title(ax), "x_label": x, "y_label": y}
    return {**chart, "x_unit": _unit(x), "y_unit": _unit(y), "elements": []}


def _unit(label: str | None) -> str | None:
    found = UNIT.search(label or "")
    return (found.group(1) or found.group(2)) if found else None


def _points_chart(ax: Any, kind: str, elements: list[Chart]) -> Chart:
    chart = _flat(ax, kind)
    for name, axis in (("x", ax.xaxis), ("y", ax.yaxis)):
        labels = [label.get_text() for label in axis.get_ticklabels()]
        ticks = _ticks(axis)
        chart |= {f"{name}_ticks": ticks, f"{name}_tick_labels": labels, f"{name}_scale": _scale(axis, ticks, labels)}
    return {**chart, "elements": elements}


def _is_of_periods(axis: Any) -> bool:
    """Pandas counts the days, months, ... of a time series, and notes at the axis which of them."""
    return getattr(axis, "freq", None) is not None


def _is_of_dates(axis: Any) -> bool:
    return isinstance(_converter(axis), dates.DateConverter | dates._SwitchableDateConverter)


def _converter(axis: Any) -> Any:
    return axis.get_converter() if hasattr(axis, "get_converter") else axis.converter


def _ticks(axis: Any) -> list[Any]:
    ticks = list(axis.get_ticklocs())
    if _is_of_periods(axis):
        period = sys.modules["pandas"].Period
        return [_value(period(ordinal=int(tick), freq=axis.freq)) for tick in ticks]
    if _is_of_dates(axis):
        return [dates.num2date(tick).isoformat() for tick in ticks]
    return [_value(tick) for tick in ticks]


def _scale(axis: Any, ticks: Sequence[Any], labels: Sequence[str]) -> str:
    if _is_of_periods(axis) or _is_of_dates(axis):
        return "datetime"
    scale = str(axis.get_scale())
    if scale != "linear":
        return scale
    # Categories stand at 0, 1, 2, ... under names that are not these numbers.
    named = [
        tick == index and label != str(index) for index, (tick, label) in enumerate(zip(ticks, labels, strict=False))
    ]
    return "categorical" if all(named) else "linear"


def _line(ax: Any) -> Chart:
    lines = [line for line in ax.get_lines() if not _is_straight(line)]
    elements = [
        {"label": _label(line, "Line"), "points": _points(line.get_xdata(orig=True), line.get_ydata(orig=True))}
        for line in lines
    ]
    return _points_chart(ax, "line", elements)


def _scatter(ax: Any) -> Chart:
    elements = []
    for dots in ax.collections:
        offsets = numpy.ma.getdata(dots.get_offsets())
        elements.append({"label": _label(dots, "Scatter"), "points": _points(offsets[:, 0], offsets[:, 1])})
    return _points_chart(ax, "scatter", elements)


def _points(xs: Iterable[Any], ys: Iterable[Any]) -> list[list[Any]]:
    return [[_value(x), _value(y)] for x, y in zip(xs, ys, strict=False)]


def _value(value: Any) -> Any:
    """A coordinate as JSON has it: a number, or text for dates and names."""
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, numpy.datetime64):
        return str(value.astype("datetime64[s]"))
    if isinstance(value, str):
        return value
    if hasattr(value, "to_timestamp"):  # a period of pandas
        return value.to_timestamp().isoformat()
    number = float(value)
    return number if math.isfinite(number) else None


def _label(artist: Any, kind: str) -> str:
    """The label the user gave, or a number where matplotlib made one up."""
    label = str(artist.get_label())
    made_up = AUTOMATIC_LABEL.fullmatch(label)
    return f"{kind} {made_up.group(1)}" if made_up else label


def _bar(ax: Any) -> Chart:
    containers = _bar_containers(ax)
    lying = bool(containers) and all(container.orientation == "horizontal" for container in containers)
    chart = _flat(ax, "bar", swap=lying)
    axis = ax.yaxis if lying else ax.xaxis
    for container in containers:
        for bar, name in zip(container, _bar_names(axis, container, lying), strict=False):
            value = bar.get_width() if lying else bar.get_height()
            chart["elements"].append({"label": name, "value": _value(value), "group": _label(container, "Group")})
    return chart


def _bar_containers(ax: Any) -> list[Any]:
    return [container for container in ax.containers if isinstance(container, BarContainer)]


def _error_lines(container: Any) -> Iterable[Any]:
    errorbar = getattr(container, "errorbar", None) or ()
    for part in itertools.chain(errorbar):
        yield from part if isinstance(part, tuple) else (part,)


def _bar_names(axis: Any, container: Any, lying: bool) -> list[str]:
    """The label of the tick each bar stands at; where there is none, ticks in order, then the position itself."""
    ticks = [float(tick) for tick in axis.get_ticklocs()]
    labels = [label.get_text() for label in axis.get_ticklabels()]
    names = []
    for bar in container:
        start, width = (bar.get_y(), bar.get_height()) if lying else (bar.get_x(), bar.get_width())
        middle = start + width / 2
        nearest = min(range(len(ticks)), key=lambda index: abs(ticks[index] - middle), default=None)
        # Bars of several groups stand beside their tick, less than half a step away.
        if nearest is not None and nearest < len(labels) and abs(ticks[nearest] - middle) < 0.5 * _step(ticks):
            names.append(labels[nearest])
        else:
            names.append(f"{_clean(middle):g}")
    return names


def _step(ticks: Sequence[float]) -> float:
    return min((b - a for a, b in itertools.pairwise(sorted(ticks)) if b > a), default=1.0)


def _pie(ax: Any) -> Chart:
    elements = [
        {
            "label": str(wedge.get_label()),
            "angle": abs(_clean(wedge.theta2 - wedge.theta1, 7)),
            "radius": float(wedge.r),
        }
        for wedge in ax.patches
    ]
    return {"type": "pie", "title": _title(ax), "elements": elements}


def _clean(number: Any, digits: int = DIGITS) -> float:
    return float(f"{float(number):.{digits}g}")


def _box_and_whisker(ax: Any) -> Chart:
    lines = [numpy.column_stack([line.get_xdata(), line.get_ydata()]).astype(float) for line in ax.lines]
    drawn = [points for line, points in zip(ax.lines, lines, strict=True) if _is_box(line)]
    boxes = [patch.get_path().vertices for patch in ax.patches] or drawn
    lying = _are_lying(boxes, lines)
    chart = _flat(ax, "box_and_whisker", swap=lying)
    along, across = (0, 1) if lying else (1, 0)
    axis = ax.yaxis if lying else ax.xaxis
    labels = [label.get_text() for label in axis.get_ticklabels()]
    for index, box in enumerate(boxes):
        label = labels[index] if index < len(labels) else str(index + 1)
        chart["elements"].append({"label": label, **_quartiles(box, lines, along, across)})
    return chart


def _are_lying(boxes: Sequence[Any], lines: Sequence[Any]) -> bool:
    """Whiskers run along the middle of their box. So may a median, across it; but whiskers are two."""
    votes = 0
    for box in boxes:
        x, y = (box.max(axis=0) + box.min(axis=0)) / 2
        for line in lines:
            if len(line) == 2 and not (line[0] == line[1]).all():
                votes += bool(numpy.allclose(line[:, 1], y)) - bool(numpy.allclose(line[:, 0], x))
    return votes > 0


def _quartiles(box: Any, lines: Sequence[Any], along: int, across: int) -> Chart:
    """Read from the box and the lines that start, end or lie within its width."""
    low, high = (_clean(box[:, along].min()), _clean(box[:, along].max()))
    left, right = box[:, across].min(), box[:, across].max()
    found: Chart = {
        "min": low,
        "first_quartile": low,
        "median": low,
        "third_quartile": high,
        "max": high,
        "outliers": [],
    }
    for line in lines:
        if not len(line) or line[:, across].min() < left - 1e-9 or line[:, across].max() > right + 1e-9:
            continue
        values = sorted(_clean(value) for value in line[:, along])
        if _is_median(line, values, low, high, along, across):
            found["median"] = values[0]
        elif len(line) == 2 and values[0] != values[1]:
            found["min"] = min(found["min"], values[0])
            found["max"] = max(found["max"], values[1])
        elif _is_dots(line, across):
            found["outliers"] += [value for value in values if not low <= value <= high]  # a mean is a dot as well
    return found


def _is_median(line: Any, values: Sequence[float], low: float, high: float, along: int, across: int) -> bool:
    return len(line) == 2 and values[0] == values[1] and low <= values[0] <= high and line[0][across] != line[1][across]


def _is_dots(line: Any, across: int) -> bool:
    """Outliers are drawn as one line of dots above each other; caps have two points side by side."""
    return len(set(line[:, across])) == 1


KINDS: dict[str, Callable[[Any], Chart]] = {
    "line": _line,
    "scatter": _scatter,
    "bar": _bar,
    "pie": _pie,
    "box_and_whisker": _box_and_whisker,
}
