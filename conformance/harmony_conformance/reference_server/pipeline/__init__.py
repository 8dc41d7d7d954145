"""From a prompt to a response over HTTP, common to all APIs."""
