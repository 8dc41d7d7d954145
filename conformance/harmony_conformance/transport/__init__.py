"""HTTP as the suite sends and receives it: messages, the client, server-sent events, redaction of secrets."""
