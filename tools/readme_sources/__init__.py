"""The parts of README.md that are made from stored reports and results."""
