"""Profiles of clients in `golden/clients.json`: what each needs of a server, by patterns of checks and scenarios.

A need is the same for every client that has it: its checks, its scenarios, and the client's loss without it. `{client}` in a pattern of scenarios is the
name of the client: those are its recorded requests. A profile has the API, the needs, and the settings of the client that avoid a loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

from harmony_conformance.golden.data import root
from harmony_conformance.json_value import Json, items, loads, members, text, value_at


@dataclass(frozen=True, kw_only=True)
class Need:
    """A need of a client.

    Attributes:
        loss: What the client does on a server that fails it, after the client's name: "will lose parallel calls".
        checks: Patterns of check ids.
        scenarios: Patterns of scenario names.
        remedy: The setting of the client that avoids the loss, or an empty text.
    """

    name: str
    loss: str
    checks: tuple[str, ...]
    scenarios: tuple[str, ...]
    remedy: str

    def covers(self, check: str, scenario: str) -> bool:
        """Return True if the result of a check on a scenario decides about this need."""
        return any(fnmatchcase(check, one) for one in self.checks) and any(
            fnmatchcase(scenario, one) for one in self.scenarios
        )


@dataclass(frozen=True, kw_only=True)
class ClientProfile:
    """Needs of a client. `setup`: how it is pointed at one. `notes`: what else its requests show."""

    name: str
    title: str
    api: str
    needs: tuple[Need, ...]
    setup: str
    notes: tuple[str, ...]

    @property
    def patterns(self) -> tuple[str, ...]:
        """The checks and scenarios of all needs, as `--select` takes them."""
        pairs = (f"{check}@{scenario}" for need in self.needs for check in need.checks for scenario in need.scenarios)
        return tuple(dict.fromkeys(pairs))


@cache
def client_profiles() -> Mapping[str, ClientProfile]:
    """Return every profile by the name that `--client` takes."""
    value = loads((root() / "clients.json").read_text(encoding="utf-8"))
    needs = members(value_at(value, "needs"))
    return {
        name: ClientProfile(
            name=name,
            title=text(value_at(profile, "title")),
            api=text(value_at(profile, "api")),
            needs=tuple(
                _read_need(text(need), needs[text(need)], name, profile) for need in items(value_at(profile, "needs"))
            ),
            setup=text(value_at(profile, "setup")),
            notes=_texts(value_at(profile, "notes")),
        )
        for name, profile in members(value_at(value, "clients")).items()
    }


def _read_need(name: str, value: Json, client: str, profile: Json) -> Need:
    own_name = client.replace("-", "_")
    return Need(
        name=name,
        loss=text(value_at(value, "loss")),
        checks=_texts(value_at(value, "checks")),
        scenarios=tuple(one.replace("{client}", own_name) for one in _texts(value_at(value, "scenarios"))),
        remedy=text(value_at(profile, "remedies", name)),
    )


def _texts(value: Json) -> tuple[str, ...]:
    return tuple(map(text, items(value)))
