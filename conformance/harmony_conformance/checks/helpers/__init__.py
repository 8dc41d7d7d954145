"""Comparisons that checks of several families share."""
