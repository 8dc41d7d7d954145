"""Headers that Anthropic's clients send with a key."""

from __future__ import annotations

from collections.abc import Collection

from harmony_conformance.apis.messages import MESSAGES

VERSION_HEADER = ("anthropic-version", "2023-06-01")


def client_headers(apis: Collection[str], key: str | None) -> dict[str, str]:
    """Return the headers of every request of a run over the Messages API, in addition to `Authorization: Bearer`.

    Gateways of Anthropic's API ask for them at every path, so also at that of the models.
    """
    return dict([("x-api-key", key), VERSION_HEADER]) if key and MESSAGES.name in apis else {}
