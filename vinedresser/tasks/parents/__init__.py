"""What makes runs of its own, a sweep or a pruning, and MLflow's run of it, the parent of theirs.

kinds           what there is, and what a store has
beginning       its record and its MLflow run, made or found again
ending          its end in MLflow, also after its process died
parent_notes    notes for the case that its folder is removed
"""
