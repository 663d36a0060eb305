"""Families of small pictures, and of what is seen in them."""
