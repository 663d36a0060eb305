"""Commands about snapshots."""
