"""Servers: profiles, targets, detection of engine and APIs, prompt endpoints, scripted output."""
