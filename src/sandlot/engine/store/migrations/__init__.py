"""Migrations: the steps that bring a database from any earlier version to this one."""
