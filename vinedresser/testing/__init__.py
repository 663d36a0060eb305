"""For tests, ours and those of who builds on us: conformance suites, made-up runs, faults."""
