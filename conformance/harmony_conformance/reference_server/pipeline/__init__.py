"""Run a prompt and send the HTTP response, common to all APIs."""
