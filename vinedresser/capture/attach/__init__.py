"""Capturing what scripts train that know nothing of it: `vinedresser run script.py`."""
