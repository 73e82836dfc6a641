"""The scripted model as one file that any Python 3.9 or newer runs, for machines that have nothing else of ours."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
MODULES = ("conversation", "script", "anthropic", "chat", "responses", "gemini", "server")


def archive() -> bytes:
    """A zip application: `python3 model.pyz script.json --port 8099`."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as whole:
        whole.writestr("__main__.py", "from tests.models.server import main\n\nmain()\n")
        for package in ("tests", "tests/models"):
            whole.writestr(f"{package}/__init__.py", "")
        for name in MODULES:
            whole.write(HERE / f"{name}.py", f"tests/models/{name}.py")
    return file.getvalue()
