"""Rates of failures by source and day."""
