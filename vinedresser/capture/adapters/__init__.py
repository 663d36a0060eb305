"""What adapters of all frameworks share: the protocol, names, setup, tree tables."""
