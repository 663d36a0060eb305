"""Which fault causes the findings of a run, and how sure that is."""
