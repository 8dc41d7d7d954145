"""The pytest plugin: one item per check and scenario."""
