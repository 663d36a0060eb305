"""Criteria that rank filters, one family per file."""
