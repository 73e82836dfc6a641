"""Where repositories are and where pull requests go: one protocol, an adapter for each forge."""
