"""Builds: turns recipes into templates, step by step, over layers that are kept by content."""

from sandlot.engine.builds.build_run import BuildTools
from sandlot.engine.builds.build_settings import BuildLimits, BuildSettings
from sandlot.engine.builds.builder import Builder
from sandlot.engine.builds.template_names import Reference, parse_name

__all__ = ["BuildLimits", "BuildSettings", "BuildTools", "Builder", "Reference", "parse_name"]
