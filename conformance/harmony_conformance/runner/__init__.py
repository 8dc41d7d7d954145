"""A run against an endpoint: build requests, send them, judge the series, measure latency."""
