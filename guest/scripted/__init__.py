"""An agent without a model, for demonstrations and tests."""
