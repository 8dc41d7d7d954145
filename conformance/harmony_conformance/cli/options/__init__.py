"""Options of the commands. These modules import no room that a command works with, so that `--help` is fast."""
