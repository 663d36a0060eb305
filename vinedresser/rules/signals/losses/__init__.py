"""Loss signals: which loss it is, and how it moves."""
