"""The audit log: who did what. It is only appended to, and every record is chained to the one before."""
