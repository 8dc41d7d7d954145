"""Processes that judge the batches of a log: on this machine, line by line, and on a cluster of Ray."""
