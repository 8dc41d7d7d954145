"""A report as a page for a browser: templates, styles, script, and the escaping of what they print."""
