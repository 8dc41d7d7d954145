"""Checks that live endpoints and logged traffic of gpt-oss models speak Harmony."""
