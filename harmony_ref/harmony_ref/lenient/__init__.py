"""Parsing of malformed completions: it accounts for every token and raises no parse error."""
