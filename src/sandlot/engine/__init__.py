"""The engine: sandboxes, spoken to over E2B's protocol and nothing else."""
