"""Builds: turns recipes into templates, step by step, over layers that are kept by content."""

from sandlot.engine.builds.builder import Builder, BuildLimits
from sandlot.engine.builds.template_names import Reference, parse_name

__all__ = ["BuildLimits", "Builder", "Reference", "parse_name"]
