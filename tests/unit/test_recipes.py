"""The parts of builds that need no machine: names, variables, image references, Dockerfiles taken apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandlot.engine.builds.context import Context, expand
from sandlot.engine.builds.template_names import parse_name, parse_tags
from sandlot.engine.core.errors import InvalidRequest, StepFailed
from sandlot.engine.core.model import LayerResult
from sandlot.engine.node.images.references import parse_image
from sandlot.recipes import dockerfiles, stock
from sandlot.recipes.recipe import RecipeFailed, read_directory


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
    first, second = dockerfiles.stages(text)
    assert (first.name, second.name) == ("one", None)
    assert "FROM inside" in first.text and second.text.startswith("ARG V=1\nFROM --platform=x b")
    (copied,) = dockerfiles.stage_copies(second.text)
    assert (copied.stage, copied.sources, copied.target) == ("one", ("/x", "/y"), "/z/")
    assert "--chown=u" in copied.head


def test_build_arguments_replace_defaults_and_unknown_ones_are_refused() -> None:
    assert dockerfiles.with_arguments("ARG A=1\nFROM x\nARG B", ["A=two words", 'B=q"$']) == (
        'ARG A="two words"\nFROM x\nARG B="q\\"\\$"'
    )
    with pytest.raises(RecipeFailed, match="no ARG"):
        dockerfiles.with_arguments("FROM x", ["A=1"])


def test_what_a_stage_takes_from_earlier_ones_is_replaced_by_templates_and_local_files() -> None:
    text = "FROM --platform=x Maker AS next\nRUN <<END\nFROM maker\nEND\nCOPY --chown=u --from=maker /x /y /z/"
    (copied,) = dockerfiles.stage_copies(text)
    local = dockerfiles.with_local_copies(text, {copied: ["a/x", "b/y"]})
    assert dockerfiles.with_stage_templates(local, {"maker": "app-stage-maker"}) == (
        "FROM --platform=x sandlot-template/app-stage-maker AS next\nRUN <<END\nFROM maker\nEND\n"
        "COPY --chown=u a/x b/y /z/"
    )
    assert dockerfiles.templates_needed("FROM sandlot-template/node AS a\nFROM a\nRUN \\\nFROM sandlot-template/x") == [
        "node"
    ]


def test_a_directory_needs_a_dockerfile_and_a_name(tmp_path: Path) -> None:
    with pytest.raises(RecipeFailed, match="no Dockerfile"):
        read_directory(tmp_path / "Dockerfile", "app")
    (tmp_path / "Dockerfile").write_text("FROM x")
    with pytest.raises(RecipeFailed, match="--name"):
        read_directory(tmp_path / "Dockerfile", None)
    (tmp_path / "e2b.toml").write_text('template_name = "old"\ncpu_count = 3\n')
    recipe = read_directory(tmp_path / "Dockerfile", None)
    assert (recipe.name, recipe.cpu_count, recipe.dockerfile, recipe.context) == ("old", 3, "FROM x", tmp_path)


def test_every_stock_template_has_a_readme_and_smoke_commands() -> None:
    for name in stock.names():
        recipe = stock.read(name)
        assert recipe.description and recipe.smoke and (stock.STOCK / name / "README.md").exists(), name
