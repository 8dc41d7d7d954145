"""Checks, the conditions under which they apply, the clauses they cite, and the verdict on an exchange or series."""
