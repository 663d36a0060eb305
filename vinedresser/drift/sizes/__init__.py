"""How large changes are: those that were found, and those that would have been found."""
