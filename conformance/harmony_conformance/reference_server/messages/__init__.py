"""Anthropic's Messages: requests, answers and routes."""
