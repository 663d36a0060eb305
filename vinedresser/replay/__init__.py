"""Running the step of a snapshot again: what it computes, which sample and operation break it."""
