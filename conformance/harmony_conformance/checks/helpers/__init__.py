"""Comparisons shared by checks of several families."""
