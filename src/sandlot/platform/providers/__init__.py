"""Sandbox providers: the E2B adapter, and the health of each."""
