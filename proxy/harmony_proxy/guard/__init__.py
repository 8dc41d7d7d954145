"""The guard: one exchange under a policy, sans-IO, and the error responses of blocked ones."""
