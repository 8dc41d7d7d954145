"""Leaked text: detection of its start, parsing, and what belongs to a text in each API."""
