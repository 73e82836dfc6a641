"""Recipes: what templates are built from (Dockerfiles, the stock templates), and building them through the official SDK."""
