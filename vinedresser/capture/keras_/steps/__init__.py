"""Execution of captured steps in eager mode."""
