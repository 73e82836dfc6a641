"""Browsers as a service: Chromium in sandboxes, spoken to through a proxy of ours."""
