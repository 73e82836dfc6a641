"""The tools for a list of things to do, kept in the sandbox through pauses and restarts."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from tools.workspace import Workspace, telling

MOST_ITEMS = 200


class Item(BaseModel):
    content: Annotated[str, Field(min_length=1, max_length=2000)]
    status: Literal["pending", "in_progress", "completed"] = "pending"


_Items = TypeAdapter(list[Item])


def _shown(items: Sequence[Item]) -> dict[str, Any]:
    return {"items": [item.model_dump() for item in items]}


class Todo:
    def __init__(self, workspace: Workspace) -> None:
        self._path = workspace.state / "todo.json"

    def tools(self) -> Sequence[Any]:
        return (self.todo_read, self.todo_write)

    def todo_read(self) -> dict[str, Any]:
        """The list of things to do."""
        return _shown(self._read())

    def _read(self) -> list[Item]:
        with telling("read", self._path):
            if not self._path.exists():
                return []
            try:
                return _Items.validate_json(self._path.read_bytes())
            except ValidationError:
                return []  # somebody else wrote there; the next write mends it

    def todo_write(self, items: Annotated[list[Item], Field(max_length=MOST_ITEMS)]) -> dict[str, Any]:
        """Replace the list of things to do with this one."""
        with telling("write", self._path):
            part = self._path.with_name(f".todo.{secrets.token_hex(4)}")
            part.write_bytes(_Items.dump_json(items))
            part.replace(self._path)
        return _shown(items)
