"""The tunnel: how a sandbox reaches the platform's own services for its task, and nothing else of the host."""
