"""Commands that send a run and report it: `run`, `run-all`, `reproduce`."""
