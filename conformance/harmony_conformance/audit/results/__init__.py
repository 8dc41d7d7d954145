"""Results of an audit: read again from `audit.jsonl`, compared, and as a page."""
