"""Pictures of runs for a page that is alive: a store as a table, a run as an overview."""
