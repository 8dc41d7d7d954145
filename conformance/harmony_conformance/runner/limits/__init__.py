"""Limits of a run: pace, number, time and tokens of its requests; loss of access and of the server."""
