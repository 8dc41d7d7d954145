"""Plans: which records of a log are judged, and by which checks."""
