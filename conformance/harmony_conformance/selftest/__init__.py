"""Self-test of the checks: every defect of the reference server, and blind mutants of correct exchanges."""
