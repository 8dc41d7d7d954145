"""The sources of the documentation site: Markdown pages of this repository, and pages made from the code."""
