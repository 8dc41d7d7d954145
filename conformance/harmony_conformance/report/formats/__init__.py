"""A report as text: for terminals, Markdown, JUnit, JSON and the formats of CI systems."""
