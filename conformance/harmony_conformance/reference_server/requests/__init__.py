"""Chat requests: validation, errors, and conversion to a Harmony conversation."""
