"""The output folder of an audit: its rows, its journal, its progress, and its table of failures."""
