"""The command `harmony-conformance proxy`. Its modules are imported when it is called."""

from harmony_conformance.cli.command import command_in

COMMAND = command_in(
    "harmony_proxy.cli",
    "proxy",
    "judge the traffic of an endpoint and log failures; optionally repair or block responses",
    "harmony_proxy.options:configure",
)
