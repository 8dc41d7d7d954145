"""Commands that compare finished runs, audits and measurements: `compare`, `matrix`."""
