"""Policies, and the actions taken under them."""
