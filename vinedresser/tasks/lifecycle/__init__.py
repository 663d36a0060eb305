"""The lifecycle of a run: prepare, launch, judge, record, settle, report."""
