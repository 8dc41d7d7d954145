"""Results of an audit: its report and causes, compared with a baseline or another audit, on a terminal and as a page."""
