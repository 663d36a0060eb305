"""Actions that follow a finding: stop the run, notify people, capture more data.

plan        which actions follow which finding
settings    settings of the actions
dispatcher  takes the actions outside the judge's thread, and records their results
base        interface of an action; each of the other modules implements one or helps to do so
"""
