"""Tasks: work on a repository, done by an agent in a sandbox of its own, that becomes a pull request."""
