"""Performance benchmarks; each module prints measurements next to their budgets."""
