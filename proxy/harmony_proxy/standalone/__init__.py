"""The standalone reverse proxy."""
