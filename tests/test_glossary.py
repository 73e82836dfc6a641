"""The glossary and the code have the same words: a noun that the code uses is explained, and is where the page says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "sandlot"
PAGE = ROOT / "docs" / "reference" / "glossary.md"
HALVES = ("engine", "platform")
FOLDERS = ("control", "builds", "gateway", "node")
# Pages in which the words of the last section must not come back. Settings keep their names.
PROSE = [
    page
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")]
    if page != PAGE
]


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.*)\n", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def entries() -> list[list[str]]:
    return [row for text in sections().values() for row in rows(text) if len(row) == 3]


def singular(word: str) -> str:
    word = word.lower()
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("sses", "xes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def known() -> set[str]:
    """Single words: those that entries are made of, and those that need no entry."""
    plain = sections()["Words that need no entry"].partition(":")[2]
    return {singular(word) for text in [plain, *(row[0] for row in entries())] for word in re.findall(r"\w+", text)}


def model_classes() -> Iterator[tuple[str, str]]:
    for half in HALVES:
        core = SOURCE / half / "core"
        for path in [*core.glob("model*.py"), *core.glob("model*/*.py")]:
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    yield str(path.relative_to(SOURCE)), node.name


def modules() -> Iterator[str]:
    """Modules and packages of the engine's folders; what a package has inside is its own business."""
    for folder in FOLDERS:
        for path in sorted((SOURCE / "engine" / folder).iterdir()):
            is_package = path.is_dir() and (path / "__init__.py").exists()
            if is_package or (path.suffix == ".py" and path.stem != "__init__"):
                yield str(path.relative_to(SOURCE))


def words_of(name: str) -> list[str]:
    return [singular(word) for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)]


@pytest.mark.parametrize(("path", "name"), [*model_classes()])
def test_every_class_of_the_model_is_named_with_words_of_the_glossary(path: str, name: str) -> None:
    unknown = [word for word in words_of(name) if word not in known()]
    assert not unknown, f"{path}: {name}: explain {unknown} in docs/reference/glossary.md, or use a word that is there"


@pytest.mark.parametrize("path", [*modules()])
def test_every_module_of_the_engine_is_named_with_words_of_the_glossary(path: str) -> None:
    name = "".join(words_of(Path(path).stem))
    if any(name in "".join(words_of(row[0])) or path in row[2] for row in entries()):
        return
    unknown = [word for word in words_of(Path(path).stem) if word not in known()]
    assert not unknown, f"{path}: explain {unknown} in docs/reference/glossary.md, or use a word that is there"


@pytest.mark.parametrize("row", entries(), ids=lambda row: row[0])
def test_entries_have_a_meaning_and_lead_somewhere(row: list[str]) -> None:
    word, meaning, where = row
    assert meaning.endswith("."), f"{word}: {meaning}"
    paths = re.findall(r"`([^`]+)`", where)
    assert paths, f"{word}: say where it is"
    for path in paths:
        assert (SOURCE / path).exists() or (ROOT / path).exists(), f"{word}: there is no {path}"


def test_no_word_is_explained_twice() -> None:
    found = [word for row in entries() for word in row[0].split(", ")]
    assert sorted(found) == sorted(set(found))


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_words_that_are_not_used_stay_away(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`|```.*?```|\]\([^)]*\)", "", page.read_text(), flags=re.DOTALL)
    text = " ".join(text.split())
    for row in rows(sections()["Words that are not used"]):
        for word in row[0].split(", "):
            found = re.search(rf".{{0,30}}\b{word}s?\b.{{0,30}}", text, re.IGNORECASE)
            assert not found, f"{page.name}: {found and found[0]!r}: say {row[1]}"
