"""Coding agents, as described by the data files in `agents/`."""
