"""The parts of builds that need no machine: names, variables, image references, Dockerfiles taken apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandlot.cli import recipes
from sandlot.cli.output import Failure
from sandlot.engine.builds.context import Context, expand
from sandlot.engine.builds.template_names import parse_name, parse_tags
from sandlot.engine.core.errors import InvalidRequest, StepFailed
from sandlot.engine.core.model import LayerResult
from sandlot.engine.node.images.references import parse_image
from sandlot.settings import Settings
from sandlot.stock import StockTemplates


@pytest.mark.parametrize(
    ("text", "alias", "tag"),
    [("app", "app", None), ("app:v1.2", "app", "v1.2"), ("team/My-App:x", "my-app", "x"), (" app ", "app", None)],
)
def test_names_are_taken_apart(text: str, alias: str, tag: str | None) -> None:
    found = parse_name(text)
    assert (found.alias, found.tag) == (alias, tag)


@pytest.mark.parametrize("text", ["", ":v1", "app:", "a b", "app:a:b", "../x:y/..", "é", "a" * 200])
def test_what_cannot_name_a_template_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_name(text)


def test_tags_may_carry_the_name_of_their_own_template_only() -> None:
    assert parse_tags(["a", "app:b", "a"], "app") == ("a", "b")
    for wrong in (":x", "app:", "other:x"):
        with pytest.raises(InvalidRequest):
            parse_tags([wrong], "app")


def test_variables_are_expanded_and_nothing_is_executed() -> None:
    values = {"A": "1", "LONG": "x y"}
    assert expand("$A ${LONG} ${NO:-other} $NO \\$A $(id) `id`", values) == "1 x y other  $A $(id) `id`"


def test_steps_hand_their_context_on() -> None:
    context = Context(layers=("base",), key="0").with_variables(["BIN", "/opt/bin", "PATH", "$BIN:$PATH"])
    assert context.env["PATH"].startswith("/opt/bin:/usr/local/sbin")
    assert (context.path("x"), context.path("/y/../z"), context.path("~/a")) == ("/home/user/x", "/z", "/home/user/a")
    assert context.after("1", LayerResult(layer=None)).layers == ("base",)
    for wrong in ([], ["A"], ["", "x"], ["A=B", "x"]):
        with pytest.raises(StepFailed):
            context.with_variables(wrong)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("python", "docker.io/library/python:latest"),
        ("e2bdev/base:1", "docker.io/e2bdev/base:1"),
        ("localhost:5000/a/b", "localhost:5000/a/b:latest"),
        ("ghcr.io/x/y@sha256:" + "0" * 64, "ghcr.io/x/y@sha256:" + "0" * 64),
        ("registry-1.docker.io/library/x", "docker.io/library/x:latest"),
    ],
)
def test_images_are_named_as_docker_names_them(text: str, shown: str) -> None:
    assert str(parse_image(text)) == shown


@pytest.mark.parametrize("text", ["", "UPPER", "a:b:c", "x@sha256:12", "../etc", "a b", "host.example/../x", "x" * 300])
def test_what_cannot_name_an_image_is_refused(text: str) -> None:
    with pytest.raises(StepFailed):
        parse_image(text)


def test_a_dockerfile_is_split_into_stages_but_not_inside_heredocs() -> None:
    text = "ARG V=1\nFROM a AS one\nRUN <<END\nFROM inside\nEND\nFROM --platform=x b\nCOPY --chown=u --from=one /x /y /z/\n"
    first, second = recipes.stages(text)
    assert (first.name, second.name) == ("one", None)
    assert "FROM inside" in first.text and second.text.startswith("ARG V=1\nFROM --platform=x b")
    (copied,) = recipes.copied_from_stages(second.text)
    assert (copied.stage, copied.sources, copied.target) == ("one", ("/x", "/y"), "/z/")
    assert "--chown=u" in copied.head


def test_build_arguments_replace_defaults_and_unknown_ones_are_refused() -> None:
    assert recipes.with_arguments("ARG A=1\nFROM x\nARG B", ["A=two words", 'B=q"$']) == (
        'ARG A="two words"\nFROM x\nARG B="q\\"\\$"'
    )
    with pytest.raises(Failure, match="no ARG"):
        recipes.with_arguments("FROM x", ["A=1"])


def test_a_stock_template_is_built_again_when_its_recipe_or_one_below_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipes, "STOCK", tmp_path / "templates")
    for name, below in (("node", "e2bdev/base"), ("agent", "sandlot-template/node"), ("other", "e2bdev/base")):
        directory = tmp_path / "templates" / name
        directory.mkdir(parents=True)
        (directory / "Dockerfile").write_text(f"FROM {below}\n")
        (directory / "template.toml").write_text("")
    before = {name: recipes.stock_digest(name) for name in recipes.stock_names()}
    first_use = StockTemplates(Settings(data_dir=tmp_path / "data"))
    begun: list[str] = []
    monkeypatch.setattr(first_use, "_begin", begun.append)
    for name in ("node", "agent"):
        note = recipes.stock_note(tmp_path / "data", name)
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(before[name])
    assert first_use.renew() == []
    (tmp_path / "templates" / "node" / "Dockerfile").write_text("FROM e2bdev/base\nRUN true\n")
    (tmp_path / "templates" / "other" / "Dockerfile").write_text("FROM e2bdev/base\nRUN true\n")
    assert first_use.renew() == begun == ["agent", "node"], "those that were built here"


def test_every_stock_template_has_a_readme_and_smoke_commands() -> None:
    for name in recipes.stock_names():
        recipe = recipes.stock(name)
        assert recipe.description and recipe.smoke and (recipes.STOCK / name / "README.md").exists(), name
