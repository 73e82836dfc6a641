"""E2B's REST control plane over the engine's services."""
