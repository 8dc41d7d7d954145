"""Golden data: scenarios, expected rows, vectors."""
