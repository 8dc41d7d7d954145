"""Names, hashes and errors of the plug-ins whose checks judged, as a report has them."""

from __future__ import annotations

from shlex import quote

from harmony_conformance.json_value import Json, JsonObject, items, members, text, value_at
from harmony_conformance.judge.check import Outcome
from harmony_conformance.report.model import Report


def used_plugins(header: Json) -> list[JsonObject]:
    """Return the plug-ins that the header of a run or an audit names."""
    return [members(one) for one in items(value_at(header, "plugins"))]


def describe_plugins(header: Json) -> str:
    """Return the names of the plug-ins with their hashes. Empty without a plug-in."""
    return "; ".join(f"{text(one.get('name'))} (sha256 {text(one.get('sha256'))})" for one in used_plugins(header))


def plugin_options(header: Json, check: str = "") -> str:
    """Return the options that name the plug-ins in a command, or that of the one with a check. Empty without a plug-in."""
    prefix = check.partition(".")[0]
    names = (text(one.get("name")) for one in used_plugins(header) if not check or text(one.get("prefix")) == prefix)
    return "".join(f" --plugin {quote(name)}" for name in names)


def has_only_plugin_errors(report: Report) -> bool:
    """Return True if all errors of a run are those of checks of plug-ins."""
    prefixes = {text(one.get("prefix")) for one in used_plugins(report.header)}
    errors = (one for one in report.results if one.outcome is Outcome.ERROR)
    return bool(prefixes) and all(one.check.partition(".")[0] in prefixes for one in errors)
