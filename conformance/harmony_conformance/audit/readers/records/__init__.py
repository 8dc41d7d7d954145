"""Records of logs: the exchange in each form of a record."""
