"""The implementations that are measured. Each module has `tasks(inputs)`: what it can do, by name, as plain calls.

A task returns what it made in a form that JSON can carry, so that equal work is compared and nothing else.
"""
