"""What several rules ask about a run: folds over its steps, worked out once for all rules."""
