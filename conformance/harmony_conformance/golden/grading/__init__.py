"""Grades of a renderer or parser: its answers against the golden vectors, and the causes of its failures."""
