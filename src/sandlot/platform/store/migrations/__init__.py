"""The steps that bring the platform's tables to this version."""
