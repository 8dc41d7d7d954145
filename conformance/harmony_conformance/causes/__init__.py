"""From failures to causes: which defects explain the failing results of a run, and which failures belong together."""
