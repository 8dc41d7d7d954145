"""Latency under load: requests that arrive whether or not earlier ones are answered, and gates on their percentiles."""
