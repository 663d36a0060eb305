"""Reconciliation: settling what a crash left behind."""
