"""Golden data: scenarios, expected rows, clients, and assertions for the tests of others."""
