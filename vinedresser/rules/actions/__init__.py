"""What follows a finding: the run is stopped, people are told, more is kept of it.

plan        which actions follow which finding
settings    of the actions
dispatcher  takes them, off the judge's path, and notes what came of them
base        what an action is; the others are one action each
"""
