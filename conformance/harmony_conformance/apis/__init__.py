"""One adapter per API: each request and response is read and written as Chat Completions."""
