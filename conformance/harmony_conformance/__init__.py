"""Checks that live endpoints and logged traffic of gpt-oss models conform to the Harmony format."""
