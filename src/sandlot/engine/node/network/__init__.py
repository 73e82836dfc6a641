"""Places on the network: namespaces, rules and relays that let a machine out, let the edge in, and nothing else."""
