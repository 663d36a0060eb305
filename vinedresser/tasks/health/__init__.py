"""Health of an installation: what `vinedresser doctor` looks at, and what it says of it."""
