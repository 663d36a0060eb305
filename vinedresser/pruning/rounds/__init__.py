"""Iterative pruning: rounds of removing, fine-tuning and evaluating, until a target or a limit.

settings       the table ``[prune]``
round_record   the record of a finished round
round_run      one round, which a supervised run executes
fine_tuning    the model of a round, in a script of the user's
whole_pruning  all rounds in one run, which is a trial of a sweep
ending         when to end, and which round is the result
"""
