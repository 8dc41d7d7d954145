"""Parsing of malformed completions: every token is accounted for, no error is raised."""
