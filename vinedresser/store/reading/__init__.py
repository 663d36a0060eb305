"""Reading a run, while it is written or years later."""
