"""Comparison of a prompt with the accepted renderings."""
