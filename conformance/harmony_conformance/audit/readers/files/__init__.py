"""Files of logs: their names, how they are packed, and the records of each format."""
