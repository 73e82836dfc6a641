"""Sandlot: a self-hosted sandbox cloud for AI agents."""

__version__ = "0.1.0"
