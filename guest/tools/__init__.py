"""The tools of a sandbox: an MCP server inside it that agents work through."""

VERSION = "1.0.0"
