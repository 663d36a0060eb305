"""Models of any framework: names, module types, setup and the adapter protocol."""
