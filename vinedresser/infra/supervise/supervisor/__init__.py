"""The supervisor process: starts a trainer, logs its output, ends it on request, records the end.

It uses only the standard library and a single thread: PDEATHSIG, which ties the trainer to the
supervisor, fires when the *thread* that forked the trainer ends.
"""
