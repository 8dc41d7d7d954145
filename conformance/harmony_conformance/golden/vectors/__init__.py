"""Golden vectors: Harmony inputs with the output that two independent implementations agree on."""
