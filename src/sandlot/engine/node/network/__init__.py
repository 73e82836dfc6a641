"""Network slots: namespaces, rules and relays that let a machine out, let the node proxy in, and nothing else."""
