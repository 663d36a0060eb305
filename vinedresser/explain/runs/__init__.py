"""Explaining a run: where its model looks in the examples that it gets wrong."""
