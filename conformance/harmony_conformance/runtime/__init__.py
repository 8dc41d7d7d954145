"""Parts without a domain, for every package: caches, processes, private files, limits, terminal text."""
