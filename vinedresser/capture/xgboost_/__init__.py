"""Capture from XGBoost."""
