"""Rates of failures by source and day, their comparison, and their page."""
