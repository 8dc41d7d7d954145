"""Detection of the engine behind a URL: known paths are requested one after another until a signature matches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harmony_conformance.engines import diagnosis
from harmony_conformance.engines.answer_signature import SERVER_HEADERS
from harmony_conformance.engines.profiles import ENGINES, Engine
from harmony_conformance.json_value import Json, items, text, value_at
from harmony_conformance.transport.client import SendRequest
from harmony_conformance.transport.messages import Request, Response

_VERSION = "/version"


@dataclass(frozen=True)
class EngineSignature:
    """Signature of an engine in the response to a GET.

    Attributes:
        matches: Predicate over the response and its JSON body.
        version_path: Path of the version in the body; empty if the body has none.
    """

    engine: str
    path: str
    matches: Callable[[Response, Json], bool]
    description: str
    version_path: tuple[str, ...] = ()


def _owned_by(owner: str) -> Callable[[Response, Json], bool]:
    return lambda _, body: any(value_at(model, "owned_by") == owner for model in items(value_at(body, "data")))


def _server(name: str) -> Callable[[Response, Json], bool]:
    return lambda response, _: response.headers.get("server", "").lower().startswith(name)


def _has(*names: str) -> Callable[[Response, Json], bool]:
    return lambda response, body: response.is_success and all(value_at(body, name) is not None for name in names)


SIGNATURES: tuple[EngineSignature, ...] = (
    *(
        EngineSignature(engine, diagnosis.MODELS_PATH, _server(name), "the header `server`")
        for name, engine in SERVER_HEADERS.items()
    ),
    EngineSignature("vllm", diagnosis.MODELS_PATH, _owned_by("vllm"), "`owned_by`"),
    EngineSignature("sglang", diagnosis.MODELS_PATH, _owned_by("sglang"), "`owned_by`"),
    EngineSignature("llamacpp", diagnosis.MODELS_PATH, _owned_by("llamacpp"), "`owned_by`"),
    EngineSignature(
        "tgi", "/info", lambda _, body: value_at(body, "router") == "text-generation-router", "`router`", ("version",)
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

VERSION_PATHS = {"tgi": "/info", "ollama": "/api/version", "llamacpp": "/props", "sglang": "/server_info"}
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
    listed = await send(Request(method="GET", path=diagnosis.MODELS_PATH, body=b""))
    if listed.response is None:
        detail = listed.failure.detail if listed.failure else "nothing was received"
        raise diagnosis.EndpointUnusableError(f"no HTTP response: {detail}")
    if listed.response.status in diagnosis.REFUSED_KEY_STATUSES:
        raise diagnosis.KeyRefusedError(listed.response.status)
    if diagnosis.is_redirect(listed.response):
        raise diagnosis.EndpointUnusableError(diagnosis.describe_redirect(listed.response))
    if limited := diagnosis.describe_rate_limit(listed.failure, listed.response):
        raise diagnosis.EndpointUnusableError(limited)
    ids = (text(value_at(model, "id")) for model in items(value_at(diagnosis.json_of(listed.response), "data")))
    models = [name for name in ids if name]
    if not models and not named and listed.failure is not None:
        raise diagnosis.EndpointUnusableError(
            f"the response to GET {diagnosis.MODELS_PATH} was truncated: {listed.failure.detail}"
        )
    if not models and not named:
        raise diagnosis.EndpointUnusableError(diagnosis.describe_missing_models(listed.response))
    answers = {diagnosis.MODELS_PATH: listed.response}
    signature = await _detect_engine(send, answers) if is_open else None
    detected = ENGINES[signature.engine] if signature is not None else None
    return Identity(
        models=models,
        version=await _get_version(send, detected or engine, answers),
        is_reference=SIGNATURES[0].matches(listed.response, None),
        engine=detected,
        signatures=(f"{signature.description} at {signature.path}",) if signature is not None else (),
    )


async def _detect_engine(send: SendRequest, answers: dict[str, Response]) -> EngineSignature | None:
    for signature in SIGNATURES:
        response = await _get(send, signature.path, answers)
        if response is not None and signature.matches(response, diagnosis.json_of(response)):
            return signature
    return None


async def _get_version(send: SendRequest, engine: Engine, answers: dict[str, Response]) -> str | None:
    for path in dict.fromkeys((VERSION_PATHS.get(engine.name, _VERSION), _VERSION)):
        response = await _get(send, path, answers)
        body = diagnosis.json_of(response) if response is not None else None
        matching = (one for one in SIGNATURES if one.path == path)
        places = [one.version_path for one in matching if one.version_path]
        versions = (text(value_at(body, *place)) for place in [*places, ("version",)])
        if version := next(filter(None, versions), ""):
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
