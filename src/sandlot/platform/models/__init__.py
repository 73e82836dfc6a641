"""The model gateway: agents call models with a key that is worth nothing elsewhere; the real key stays on the host."""
