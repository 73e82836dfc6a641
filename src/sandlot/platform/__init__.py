"""The platform: sessions, events and tools on top of sandboxes, which it reaches only through the official E2B SDK."""
