"""envd: the daemon inside every sandbox, speaking E2B's process, filesystem and file-transfer protocols."""

VERSION = "0.7.0"
PORT = 49983
