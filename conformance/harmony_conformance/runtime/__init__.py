"""Parts without a domain, for every room: caches, processes, private files, limits, terminal text."""
