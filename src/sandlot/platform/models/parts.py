"""What the platform's routes and tasks are given of the model gateway."""

from __future__ import annotations

from dataclasses import dataclass

from sandlot.platform.models.gateway import ModelGateway
from sandlot.platform.models.usage_report import ModelUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelServices:
    gateway: ModelGateway
    usage: ModelUsage
