"""Caches of derived values, and worker processes."""
