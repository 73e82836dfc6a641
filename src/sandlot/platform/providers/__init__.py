"""Providers of sandboxes: each wraps one way of reaching them."""
