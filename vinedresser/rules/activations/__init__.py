"""Rules about activation outputs."""
