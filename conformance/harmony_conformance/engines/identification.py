"""Detection of the engine behind a URL: known paths are requested one after another until a signature matches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harmony_conformance.engines.diagnosis import (
    MODELS,
    REFUSED_KEY,
    EndpointUnusableError,
    KeyRefusedError,
    is_redirect,
    json_of,
    no_model,
    rate_limited,
    redirect,
)
from harmony_conformance.engines.profiles import ENGINES, Engine
from harmony_conformance.json_value import Json, at, items, text
from harmony_conformance.transport.client import SendRequest
from harmony_conformance.transport.messages import Request, Response

_VERSION = "/version"


@dataclass(frozen=True)
class EngineSignature:
    """Signature of an engine in the response to a GET.

    Attributes:
        holds: Predicate over the response and its JSON body.
        version: Path of the version in the body; empty if the body has none.
    """

    engine: str
    path: str
    holds: Callable[[Response, Json], bool]
    about: str
    version: tuple[str, ...] = ()


def _owned_by(owner: str) -> Callable[[Response, Json], bool]:
    return lambda _, body: any(at(model, "owned_by") == owner for model in items(at(body, "data")))


def _server(name: str) -> Callable[[Response, Json], bool]:
    return lambda response, _: response.headers.get("server", "").lower().startswith(name)


def _has(*names: str) -> Callable[[Response, Json], bool]:
    return lambda response, body: response.is_success and all(at(body, name) is not None for name in names)


SIGNS: tuple[EngineSignature, ...] = (
    EngineSignature("reference", MODELS, _server("harmony-conformance"), "the header `server`"),
    EngineSignature("llamacpp", MODELS, _server("llama.cpp"), "the header `server`"),
    EngineSignature("vllm", MODELS, _owned_by("vllm"), "`owned_by`"),
    EngineSignature("sglang", MODELS, _owned_by("sglang"), "`owned_by`"),
    EngineSignature("llamacpp", MODELS, _owned_by("llamacpp"), "`owned_by`"),
    EngineSignature(
        "tgi", "/info", lambda _, body: at(body, "router") == "text-generation-router", "`router`", ("version",)
    ),
    EngineSignature("ollama", "/", lambda response, _: b"Ollama is running" in response.body, "the greeting"),
    EngineSignature("ollama", "/api/version", _has("version"), "`version`", ("version",)),
    EngineSignature(
        "llamacpp", "/props", _has("default_generation_settings"), "`default_generation_settings`", ("build_info",)
    ),
    EngineSignature(
        "sglang", "/server_info", _has("tp_size", "mem_fraction_static"), "`mem_fraction_static`", ("version",)
    ),
)
"""In order of detection: signatures in the model list first, and an engine's own before those that other engines copied."""

VERSIONS = {"tgi": "/info", "ollama": "/api/version", "llamacpp": "/props", "sglang": "/server_info"}
"""Path of the version for engines without `/version`."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Models, version and engine of a server, and the signatures by which the engine was detected.

    `is_reference`: True for the reference server, which plays scripts.
    """

    models: list[str]
    version: str | None
    is_reference: bool
    engine: Engine | None = None
    signatures: tuple[str, ...] = ()


async def identify(send: SendRequest, named: str | None, engine: Engine, *, is_open: bool) -> Identity:
    """List the models of a server and detect its engine and version.

    `named`: the model that the user named, else None; `is_open`: True if the engine is to be detected.

    Raises:
        EndpointUnusableError: No HTTP response, a redirect, a rate limit, or neither a listed nor a named model.
        KeyRefusedError: The server rejected the API key.
    """
    listed = await send(Request(method="GET", path=MODELS, body=b""))
    if listed.response is None:
        detail = listed.failure.detail if listed.failure else "nothing was received"
        raise EndpointUnusableError(f"no HTTP response: {detail}")
    if listed.response.status in REFUSED_KEY:
        raise KeyRefusedError(listed.response.status)
    if is_redirect(listed.response):
        raise EndpointUnusableError(redirect(listed.response))
    if limited := rate_limited(listed.failure, listed.response):
        raise EndpointUnusableError(limited)
    ids = (text(at(model, "id")) for model in items(at(json_of(listed.response), "data")))
    models = [name for name in ids if name]
    if not models and not named and listed.failure is not None:
        raise EndpointUnusableError(f"the response to GET {MODELS} was truncated: {listed.failure.detail}")
    if not models and not named:
        raise EndpointUnusableError(no_model(listed.response))
    answers = {MODELS: listed.response}
    signature = await _detect_engine(send, answers) if is_open else None
    detected = ENGINES[signature.engine] if signature is not None else None
    return Identity(
        models=models,
        version=await _get_version(send, detected or engine, answers),
        is_reference=SIGNS[0].holds(listed.response, None),
        engine=detected,
        signatures=(f"{signature.about} at {signature.path}",) if signature is not None else (),
    )


async def _detect_engine(send: SendRequest, answers: dict[str, Response]) -> EngineSignature | None:
    for signature in SIGNS:
        response = await _get(send, signature.path, answers)
        if response is not None and signature.holds(response, json_of(response)):
            return signature
    return None


async def _get_version(send: SendRequest, engine: Engine, answers: dict[str, Response]) -> str | None:
    for path in dict.fromkeys((VERSIONS.get(engine.name, _VERSION), _VERSION)):
        response = await _get(send, path, answers)
        body = json_of(response) if response is not None else None
        places = [signature.version for signature in SIGNS if signature.path == path and signature.version]
        if version := next((text(at(body, *place)) for place in [*places, ("version",)] if text(at(body, *place))), ""):
            return version
    return None


async def _get(send: SendRequest, path: str, answers: dict[str, Response]) -> Response | None:
    """Return the response of a path, sending the request only once."""
    if path not in answers:
        sent = await send(Request(method="GET", path=path, body=b""))
        if sent.response is None:
            return None
        answers[path] = sent.response
    return answers[path]
