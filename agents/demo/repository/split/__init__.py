"""Splits a bill between friends."""

from split.shares import shares

__all__ = ["shares"]
