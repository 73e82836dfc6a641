"""The pages of the documentation that are generated, and the command that writes them."""

from __future__ import annotations

from collections.abc import Callable

from sandlot.cli import output
from sandlot.cli.output import Failure
from sandlot.data_files import SOURCES

DOCS = SOURCES.parent / "docs"


def pages() -> dict[str, Callable[[], str]]:
    """Paths from docs/, and what makes their content."""
    from sandlot.cli.reference.commands import commands_page
    from sandlot.cli.reference.decisions import decisions_page
    from sandlot.cli.reference.http import http_page, platform_document
    from sandlot.cli.reference.settings import settings_page

    return {
        "reference/cli.md": commands_page,
        "reference/http.md": http_page,
        "reference/settings.md": settings_page,
        "../web/openapi.json": platform_document,
        "decisions/README.md": lambda: decisions_page(DOCS / "decisions"),
    }


def reference() -> None:
    """Write the generated pages of the documentation: commands, routes, settings, decisions; and the API that the console is typed by."""
    if not DOCS.is_dir():
        raise Failure("the documentation is not here: it comes with the source, not with an installed package")
    for name, page in pages().items():
        path = (DOCS / name).resolve()
        path.parent.mkdir(exist_ok=True)
        path.write_text(page())
        output.done(str(path.relative_to(DOCS.parent)))
