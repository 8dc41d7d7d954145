"""Targets of a run: `reference`, `reference:defect=ID`, `vllm:http://host:8000/v1`, `replay:exchanges.jsonl`, or a URL."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import PurePath
from urllib.parse import urlsplit

import idna

from harmony_conformance.engines.profiles import ENGINES, Engine, engine_for_host

_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_.])?|[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?")
_PATH = re.compile(r"[!-~]*")
_SCHEME = re.compile(r"^([a-z]+:)?(https?|wss?)://", re.IGNORECASE)
"""The scheme of a URL, perhaps after an engine: RFC 3986 accepts it in capitals."""
_ENDS = ("/chat/completions", "/completions", "/responses", "/models")
_RIGHT_URL = "http://host:port or https://host, with or without /v1"
_WEBSOCKET_SCHEMES = {"ws": "http", "wss": "https"}


class InvalidTargetError(ValueError):
    """A string that is not a target. The message has the expected form."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Engine and address of a target, or a recording.

    Attributes:
        base_url: URL without `/v1`, always of HTTP; None for the embedded server and for a recording.
        replay: File of a recording to judge again.
        is_engine_unknown: True if the user gave only a URL, so that the engine is to be detected.
        is_websocket: True for a ws or wss URL: streamed Responses requests go over WebSockets.
    """

    engine: Engine
    base_url: str | None = None
    defects: tuple[str, ...] = ()
    replay: PurePath | None = None
    is_engine_unknown: bool = False
    is_websocket: bool = False

    @property
    def host(self) -> str:
        """Host and port, `embedded`, or the file name of a recording."""
        if self.replay is not None:
            return self.replay.name
        return urlsplit(self.base_url).netloc if self.base_url is not None else "embedded"

    @property
    def is_local(self) -> bool:
        """True if requests stay on this machine."""
        return is_loopback(self.base_url)

    def __str__(self) -> str:
        """Return the string that `parse_target` reads."""
        if self.replay is not None:
            return f"replay:{self.replay}"
        if self.base_url is None:
            return self.engine.name + "".join(f":defect={defect}" for defect in self.defects)
        url = f"ws{self.base_url.removeprefix('http')}" if self.is_websocket else self.base_url
        return url if self.is_engine_unknown else f"{self.engine.name}:{url}"


def is_loopback(url: str | None) -> bool:
    """Return True if a URL is of this machine, or None."""
    return url is None or urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")


def parse_target(text: str) -> Target:
    """Parse a target. The host of a bare URL names a provider; for any other host the engine is to be detected.

    Raises:
        InvalidTargetError: The engine is unknown or the URL is invalid.
    """
    text = _SCHEME.sub(lambda scheme: scheme[0].lower(), text.strip())
    if text.startswith(("http://", "https://", "ws://", "wss://")):
        base = _base(text)
        known = engine_for_host((urlsplit(base).hostname or "").lower())
        return Target(
            engine=known or ENGINES["openai"],
            base_url=base,
            is_engine_unknown=known is None,
            is_websocket=_is_websocket(text),
        )
    name, _, rest = text.partition(":")
    if name == "replay":
        if not rest:
            raise InvalidTargetError(f"invalid target {text!r}: expected a file, for example replay:exchanges.jsonl")
        return Target(engine=ENGINES["openai"], replay=PurePath(rest))
    if name not in ENGINES and (url := _with_scheme(text)):
        raise InvalidTargetError(f"invalid target {text!r}: expected a URL with its scheme, such as {url}")
    if name not in ENGINES:
        forms = f"reference, a URL, or ENGINE:URL with ENGINE one of {', '.join(ENGINES)}"
        raise InvalidTargetError(f"invalid target {text!r}: expected {forms}")
    if name == "reference" and (not rest or rest.startswith("defect=")):
        defects = tuple(part.removeprefix("defect=") for part in rest.split(":") if part)
        return Target(engine=ENGINES[name], defects=tuple(defect for part in defects for defect in part.split(",")))
    if not rest:
        example = f"{name}:http://127.0.0.1:8000/v1"
        raise InvalidTargetError(f"invalid target {text!r}: expected a URL, for example {example}")
    if url := _with_scheme(rest):
        raise InvalidTargetError(f"invalid target {text!r}: expected a URL with its scheme, such as {name}:{url}")
    return Target(engine=ENGINES[name], base_url=_base(rest), is_websocket=_is_websocket(rest))


def _with_scheme(text: str) -> str:
    """Return the URL that is probably meant by a host without a scheme. Empty for another text."""
    place = text.partition("/")[0]
    host, colon, port = place.rpartition(":") if not place.endswith("]") else (place, "", "")
    name = host if colon else place
    is_host = name == "localhost" or "." in name or name.startswith("[") or (colon and port.isdigit())
    if (
        "://" in text
        or "@" in place
        or not is_host
        or (colon and not port.isdigit())
        or not _HOST.fullmatch(name.strip("[]"))
    ):
        return ""
    return f"{'http' if is_loopback(f'http://{place}') or _is_private(name) else 'https'}://{text}"


def _is_private(host: str) -> bool:
    """Return True for a private address, and for a name without a domain, which serve HTTP as a rule."""
    try:
        return ip_address(host.strip("[]")).is_private
    except ValueError:
        return "." not in host


def _is_websocket(url: str) -> bool:
    return urlsplit(url).scheme in _WEBSOCKET_SCHEMES


def _base(url: str) -> str:
    """Return the URL of HTTP without `/v1` and without the path of an API after it.

    Raises:
        InvalidTargetError: The URL is invalid, or has credentials, a query or a fragment.
    """
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise InvalidTargetError("invalid URL: expected no user or password; use --api-key-env for the key")
    try:
        split = urlsplit(url)
        host, port = split.hostname or "", split.port
    except ValueError:
        raise InvalidTargetError(f"invalid URL: expected {_RIGHT_URL}, got {url!r}") from None
    netloc = split.netloc
    if not host.isascii():
        host = _ascii_host(host)
        netloc = host if port is None else f"{host}:{port}"
    scheme = _WEBSOCKET_SCHEMES.get(split.scheme, split.scheme)
    is_http = scheme in ("http", "https")
    if not is_http or not _HOST.fullmatch(host) or port == 0 or not _PATH.fullmatch(split.path):
        raise InvalidTargetError(f"invalid URL: expected {_RIGHT_URL}, got {url!r}")
    if split.query or split.fragment:
        raise InvalidTargetError(f"invalid URL: expected {_RIGHT_URL}, got a query or a fragment")
    path = split.path.rstrip("/")
    end = next((end for end in _ENDS if path.endswith(end)), "")
    path = path.removesuffix(end)
    if end and not path.endswith("/v1"):
        raise InvalidTargetError(f"invalid URL: expected the URL up to /v1, got the path of an API: {url!r}")
    return f"{scheme}://{netloc}{path.removesuffix('/v1')}"


def _ascii_host(host: str) -> str:
    """Return the ASCII form of an international host name (`xn--…`), as it is sent; empty for a name that has none."""
    try:
        return idna.encode(host, uts46=True).decode("ascii")
    except idna.IDNAError:
        return ""
