"""Options of the commands. These modules import no package that a command works with, so that `--help` is fast."""
