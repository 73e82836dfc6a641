"""One file per step, named by its place in the order."""
