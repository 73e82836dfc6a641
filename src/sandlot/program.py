"""What people type to run Sandlot: the launcher in a checkout, the installed command elsewhere. Messages name commands with it."""

from __future__ import annotations

from pathlib import Path

INSTALLED = (Path(__file__).resolve().parent / "_data").is_dir()  # only a wheel has its data inside the package
CHECKOUT = "./sandlot"
SANDLOT = "sandlot" if INSTALLED else CHECKOUT
