"""Filter pruning: criteria, plans and what they need of a framework."""
