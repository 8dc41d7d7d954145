"""OpenTelemetry: a GenAI span and metrics for each answer of a known route. Imported only if it is switched on."""
