"""Prefect tasks: thin calls into the layers below, and the experiment file that they work from."""
