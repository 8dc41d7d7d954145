"""Checks of users: plug-ins that `--plugin` names, loaded once in each process that judges."""
