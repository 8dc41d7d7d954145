"""Reports: the model, and its renderings for terminal, HTML, Markdown and JUnit."""
