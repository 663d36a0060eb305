"""A local web page of a store or a run, alive while trainings write."""
