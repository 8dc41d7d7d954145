"""Commands that measure an endpoint: `rates`, `load`."""
