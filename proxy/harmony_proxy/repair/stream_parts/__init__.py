"""Parts that all stream repairs share: event splitting, buffering, judging, rewriting."""
