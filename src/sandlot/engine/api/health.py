"""The routes about the server itself: is it there, what is it, how is it doing. They need no key and name no sandbox."""

from __future__ import annotations

from fastapi import APIRouter, Response

from sandlot.engine.api.deps import Given
from sandlot.engine.api.responses import Health

router = APIRouter(tags=["server"])


@router.get("/health")
async def health(deps: Given) -> Health:
    """Answers as soon as the server takes requests."""
    return Health(version=deps.version)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(deps: Given) -> Response:
    """Counters and gauges for Prometheus."""
    return Response(await deps.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/", include_in_schema=False)
async def root(deps: Given) -> dict[str, str]:
    return {"name": "sandlot", "version": deps.version, "docs": "/docs", "health": "/health"}
