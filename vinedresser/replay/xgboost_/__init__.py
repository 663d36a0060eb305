"""Replaying snapshots of XGBoost: calls of a custom objective."""
