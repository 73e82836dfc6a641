"""What the server says in a language, and how it reads what kernels of it say."""

from __future__ import annotations

import pytest

from interpreter.languages import _assign_java, _read_java_error


def test_values_of_java_variables_are_text_whatever_they_hold() -> None:
    code = _assign_java({"A": 'say "x" \\ \n=%maven ü', "GONE": None})
    first, second = code.splitlines()
    assert first == r'System.setProperty("A", "say \"x\" \\ \n=\u0025maven \u00fc");'
    assert second == 'System.clearProperty("GONE");'


@pytest.mark.parametrize(
    ("traceback", "expected"),
    [
        ("java.lang.IllegalStateException: why\n\tat .(#1:1)", ("IllegalStateException", "why")),
        ("java.util.NoSuchElementException\n\tat .(#1:1)", ("NoSuchElementException", "")),
        ("|   int n = ;\nillegal start of expression\n", ("CompilationException", "illegal start of expression")),
        ("", ("CompilationException", "")),
    ],
)
def test_errors_of_java_have_the_name_and_the_message_of_what_was_thrown(
    traceback: str, expected: tuple[str, str]
) -> None:
    assert _read_java_error("CompilationException", traceback) == expected
