"""Filter pruning: criteria, surgery and replayable plans. Nothing is built here yet."""
