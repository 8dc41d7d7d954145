"""Readers of logs: from a path to records, and from a record to exchanges."""
