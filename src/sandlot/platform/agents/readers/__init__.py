"""Readers of what agents print, one module for each format."""
