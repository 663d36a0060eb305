"""Loss signals: identity and progress of the losses."""
