"""Chat requests: validation, errors, and the Harmony conversation they become."""
