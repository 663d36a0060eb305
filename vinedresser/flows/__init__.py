"""Prefect flows: order and parameters, nothing else."""
