"""Middleware that judges live traffic between clients and gpt-oss servers."""
