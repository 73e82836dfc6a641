"""The platform's door: its HTTP API."""
