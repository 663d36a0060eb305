"""Families of measured curves and sounds."""
