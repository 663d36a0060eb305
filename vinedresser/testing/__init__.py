"""Testing tools for vinedresser and its extensions: conformance suites, sample runs, faults."""
