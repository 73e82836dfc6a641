"""Charts of matplotlib as data, read back through real kernels and the picture beside them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.interpreter.conftest import Interpreter


@pytest.fixture(scope="module")
def canvas(interpreter: Interpreter) -> str:
    context = interpreter.context()
    interpreter.run("import matplotlib.pyplot as plt, numpy as np, datetime", context_id=context)
    return context


def chart(interpreter: Interpreter, canvas: str, code: str) -> dict[str, Any]:
    (line,) = [line for line in interpreter.run(f"{code}\nplt.show()", context_id=canvas) if line["type"] == "result"]
    assert line["png"]
    return dict(line.get("chart") or {})


def test_lines_with_units_and_dates(interpreter: Interpreter, canvas: str) -> None:
    code = """
plt.plot([datetime.date(2023, 9, 1), datetime.date(2023, 9, 2), datetime.date(2023, 9, 4)], [1, 2, np.nan], label='a')
plt.axhline(1.5)
plt.xlabel('Time (s)'); plt.ylabel('Speed [m/s]'); plt.title('T')"""
    found = chart(interpreter, canvas, code)
    assert (found["type"], found["title"], found["x_scale"], found["y_scale"]) == ("line", "T", "datetime", "linear")
    assert (found["x_unit"], found["y_unit"]) == ("s", "m/s")
    assert found["elements"] == [
        {"label": "a", "points": [["2023-09-01", 1.0], ["2023-09-02", 2.0], ["2023-09-04", None]]}
    ]


def test_scatter_with_two_sets(interpreter: Interpreter, canvas: str) -> None:
    found = chart(interpreter, canvas, "plt.scatter([1, 2], [3, 4], label='p'); plt.scatter([5], [6], label='q')")
    assert found["type"] == "scatter" and found["title"] is None
    assert [(e["label"], e["points"]) for e in found["elements"]] == [
        ("p", [[1.0, 3.0], [2.0, 4.0]]),
        ("q", [[5.0, 6.0]]),
    ]


def test_bars_that_stand_lie_and_are_equal(interpreter: Interpreter, canvas: str) -> None:
    names = "['A', 'B', 'C']"
    standing = chart(interpreter, canvas, f"plt.bar({names}, [2, 2, 2], label='g'); plt.xlabel('n'); plt.ylabel('v')")
    lying = chart(interpreter, canvas, f"plt.barh({names}, [1, 2, 3], label='g'); plt.xlabel('v'); plt.ylabel('n')")
    assert [(b["label"], b["value"], b["group"]) for b in standing["elements"]] == [
        ("A", 2.0, "g"),
        ("B", 2.0, "g"),
        ("C", 2.0, "g"),
    ]
    assert [b["value"] for b in lying["elements"]] == [1.0, 2.0, 3.0]
    assert (standing["x_label"], standing["y_label"]) == (lying["x_label"], lying["y_label"]) == ("n", "v")


def test_bars_in_groups_keep_the_name_of_their_place(interpreter: Interpreter, canvas: str) -> None:
    code = """
x = np.arange(2)
plt.bar(x - 0.2, [1, 2], 0.4, label='left'); plt.bar(x + 0.2, [3, 4], 0.4, label='right'); plt.xticks(x, ['one', 'two'])"""
    found = chart(interpreter, canvas, code)
    assert [(b["group"], b["label"], b["value"]) for b in found["elements"]] == [
        ("left", "one", 1.0),
        ("left", "two", 2.0),
        ("right", "one", 3.0),
        ("right", "two", 4.0),
    ]


def test_pies_have_angles(interpreter: Interpreter, canvas: str) -> None:
    found = chart(interpreter, canvas, "plt.pie([90, 10], labels=['No', 'Yes'])")
    assert found["type"] == "pie"
    assert [(w["label"], w["angle"], w["radius"]) for w in found["elements"]] == [
        ("No", 324.0, 1.0),
        ("Yes", 36.0, 1.0),
    ]


@pytest.mark.parametrize("orientation", ["vertical", "horizontal"])
@pytest.mark.parametrize("options", ["patch_artist=True", "showmeans=True"])
def test_boxes_have_quartiles_and_outliers(
    interpreter: Interpreter, canvas: str, orientation: str, options: str
) -> None:
    code = f"""
data = [[85, 90, 78, 92, 88], [95, 89, 76, 91, 84, 87], [75, 82, 88, 79, 86]]
plt.boxplot(data, tick_labels=['A', 'B', 'C'], {options}, orientation={orientation!r})"""
    found = chart(interpreter, canvas, code)
    assert found["type"] == "box_and_whisker"
    assert [tuple(b.values()) for b in found["elements"]] == [
        ("A", 78, 85, 88, 90, 92, []),
        ("B", 84, 84.75, 88, 90.5, 95, [76]),
        ("C", 75, 79, 82, 86, 88, []),
    ]


def test_a_single_box_may_lie(interpreter: Interpreter, canvas: str) -> None:
    found = chart(interpreter, canvas, "plt.boxplot([1, 2, 3, 4, 5], tick_labels=['A'], orientation='horizontal')")
    assert [tuple(b.values()) for b in found["elements"]] == [("A", 1, 2, 3, 4, 5, [])]


def test_a_rectangle_is_a_line(interpreter: Interpreter, canvas: str) -> None:
    found = chart(interpreter, canvas, "plt.plot([0, 1, 1, 0, 0], [0, 0, 1, 1, 0]); plt.axhline(1); plt.axvline(0)")
    assert (found["type"], len(found["elements"][0]["points"])) == ("line", 5)


def test_a_band_around_a_line_is_left_aside(interpreter: Interpreter, canvas: str) -> None:
    code = "plt.plot([1, 2], [3, 4], label='l'); plt.fill_between([1, 2], [2, 3], [4, 5])"
    found = chart(interpreter, canvas, code)
    assert (found["type"], found["elements"]) == ("line", [{"label": "l", "points": [[1.0, 3.0], [2.0, 4.0]]}])


def test_a_filled_shape_with_helper_lines_is_not_a_line(interpreter: Interpreter, canvas: str) -> None:
    code = "plt.fill_between([1, 2], [2, 3]); plt.plot([1.5], [1], marker='o'); plt.plot([1, 2], [1, 1])"
    assert chart(interpreter, canvas, code)["type"] == "unknown"


def test_time_series_of_pandas_have_dates(interpreter: Interpreter, canvas: str) -> None:
    code = "import pandas as pd\npd.Series([1, 2], index=pd.date_range('2020-01-31', periods=2), name='s').plot(legend=True)"
    found = chart(interpreter, canvas, code)
    assert (found["type"], found["x_scale"]) == ("line", "datetime")
    assert found["elements"] == [{"label": "s", "points": [["2020-01-31T00:00:00", 1.0], ["2020-02-01T00:00:00", 2.0]]}]
    assert "2020-02-01T00:00:00" in found["x_ticks"]


def test_three_dimensions_are_no_chart(interpreter: Interpreter, canvas: str) -> None:
    code = "plt.figure().add_subplot(projection='3d').scatter([1], [2], [3])"
    assert chart(interpreter, canvas, code)["type"] == "unknown"


def test_several_axes_are_a_superchart(interpreter: Interpreter, canvas: str) -> None:
    code = "f, (a, b) = plt.subplots(1, 2); f.suptitle('S'); a.plot([1, 3]); b.scatter([1], [2]); a.grid(True)"
    found = chart(interpreter, canvas, code)
    assert (found["type"], found["title"]) == ("superchart", "S")
    assert [part["type"] for part in found["elements"]] == ["line", "scatter"]


def test_names_and_powers_have_scales_of_their_own(interpreter: Interpreter, canvas: str) -> None:
    assert chart(interpreter, canvas, "plt.plot(['x', 'y', 'z'], [1, 2, 3])")["x_scale"] == "categorical"
    assert chart(interpreter, canvas, "plt.plot([1, 2, 3]); plt.yscale('log')")["y_scale"] == "log"


def test_what_is_not_known_has_a_title_at_least(interpreter: Interpreter, canvas: str) -> None:
    code = "f, a = plt.subplots(); a.add_artist(plt.Circle((0, 0), 1)); a.set_title('C')"
    assert chart(interpreter, canvas, code) == {"type": "unknown", "title": "C", "elements": []}


def test_an_empty_figure_has_no_chart(interpreter: Interpreter, canvas: str) -> None:
    assert chart(interpreter, canvas, "plt.figure(); plt.axes()") == {}
