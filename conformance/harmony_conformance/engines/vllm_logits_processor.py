"""Logits processor for vLLM (V1 model runner) that makes a request choose the model's output, token by token.

    vllm serve MODEL --logits-processors harmony_conformance.vllm_script:ScriptedLogits
    {"messages": [...], "vllm_xargs": {"harmony_script": [200005, 17196, 200008, 13225, 200002]}}

The server generates exactly `harmony_script`, then `harmony_script_then` (default <|endoftext|>) until a stop condition.
The weights do not matter, so the output of its Harmony parser can be judged for known tokens.
With `harmony_script_then: "model"` the script only begins the output; the weights, under any grammar, generate the rest.
A script may also be a string of ids separated by spaces: vLLM 0.11.0 takes no lists in `vllm_xargs`.
A request without `harmony_script` is unchanged. A script that cannot be played is rejected with HTTP 400.

The file imports nothing else of this package, so that it can be installed next to any vLLM. Without vLLM the class has
no base and serves only for tests. The interface is that of vllm 0.11.0, which does not validate a script before it is
queued, and of vllm 0.32.0 (vllm/v1/sample/logits_processor/interface.py). The V2 model runner (GPU only in 0.32.0) has
a different interface and rejects this class at server start.

Error: VllmScriptError(field, actual, expected), a ValueError because vLLM answers those with HTTP 400.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    LogitsProcessor = object
else:
    try:
        from vllm.v1.sample.logits_processor import LogitsProcessor
    except ModuleNotFoundError as error:
        if error.name != "vllm":
            raise
        LogitsProcessor = object

SCRIPT: Final = "harmony_script"
THEN: Final = "harmony_script_then"
MODEL: Final = "model"
ENDOFTEXT: Final = 199999
VOCABULARY: Final = 201088
"""Rows of gpt-oss's embedding, as a constant: vLLM validates a request before the model is known."""


class VllmScriptError(ValueError):
    """A script that cannot be played: its field, actual value and expected value."""

    def __init__(self, field: str, actual: object, expected: str) -> None:
        super().__init__(f"invalid vllm_xargs.{field}: expected {expected}, got {actual!r}")
        self.field = field
        self.actual = actual
        self.expected = expected


@dataclass(frozen=True, kw_only=True)
class Script:
    """Token ids to generate, and the id to repeat after them; None leaves the rest to the weights."""

    ids: tuple[int, ...]
    then: int | None = ENDOFTEXT

    def token_at(self, position: int) -> int | None:
        """Return the token to generate after `position` tokens, None to leave it to the weights."""
        return self.ids[position] if position < len(self.ids) else self.then


def read_script(extra: Mapping[str, object] | None) -> Script | None:
    """Return the script of a request's `vllm_xargs`, None if there is no script.

    Raises:
        VllmScriptError: A value is not a gpt-oss token id, or `harmony_script_then` has no `harmony_script`.
    """
    if not extra or not extra.keys() & {SCRIPT, THEN}:
        return None
    if SCRIPT not in extra:
        raise VllmScriptError(THEN, extra[THEN], f"no value without {SCRIPT}")
    ids = _split(extra[SCRIPT])
    if not _is_list(ids):
        raise VllmScriptError(SCRIPT, ids, "a list of token ids")
    then = extra.get(THEN, ENDOFTEXT)
    return Script(
        ids=tuple(_token(f"{SCRIPT}[{position}]", value) for position, value in enumerate(ids)),
        then=None if then == MODEL else _token(THEN, then),
    )


def _split(value: object) -> object:
    """Return the ids of a string as a list; any other value unchanged."""
    words = value.split() if isinstance(value, str) else []
    return [int(word) for word in words] if words and all(map(str.isdecimal, words)) else value


def _is_list(value: object) -> TypeGuard[list[object] | tuple[object, ...]]:
    return isinstance(value, list | tuple)


def _token(field: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < VOCABULARY:
        raise VllmScriptError(field, value, f"a token id, 0 to {VOCABULARY - 1}")
    return value


class SamplingParams(Protocol):
    """The used part of vLLM's class: the request's `vllm_xargs`."""

    extra_args: Mapping[str, object] | None


class Direction(Protocol):
    """vLLM's MoveDirectionality; the name of its member is SWAP or UNIDIRECTIONAL."""

    name: str


class BatchUpdate(Protocol):
    """Rows of the batch that were assigned to another request since the last step."""

    removed: Sequence[int]
    added: Sequence[tuple[int, SamplingParams, Sequence[int] | None, Sequence[int]]]
    moved: Sequence[tuple[int, int, Direction]]


class Row(Protocol):
    """Logits of one request, a tensor of `VOCABULARY` values."""

    def fill_(self, value: float, /) -> object:
        """Set every value."""
        ...

    def __setitem__(self, token: int, value: float, /) -> None: ...


class Logits(Protocol):
    """Logits of the batch, one row per request."""

    def __getitem__(self, row: int, /) -> Row: ...


@dataclass(frozen=True, kw_only=True)
class _ScriptProgress:
    script: Script
    output: Sequence[int]
    """vLLM's list of output tokens, which grows in place. Its length is the position, even after a preemption, when the
    request is added again, and with asynchronous scheduling, when the last values are placeholders."""


class ScriptedLogits(LogitsProcessor):
    """Logits processor that leaves one possible token to a scripted request and all tokens to any other."""

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Validate a request before it is queued; vLLM returns a VllmScriptError as HTTP 400."""
        read_script(sampling_params.extra_args)

    def __init__(self, vllm_config: object, device: object, is_pin_memory: object) -> None:
        del vllm_config, device, is_pin_memory
        self._rows: dict[int, _ScriptProgress] = {}

    def is_argmax_invariant(self) -> bool:
        """Return False: vLLM skips argmax-invariant processors for greedy sampling."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Update the rows of the requests: removed, then added, then moved, in the order that vLLM requires."""
        if batch_update is None:
            return
        for row in batch_update.removed:
            self._rows.pop(row, None)
        for row, params, _prompt, output in batch_update.added:
            script = read_script(params.extra_args)
            self._put(row, None if script is None else _ScriptProgress(script=script, output=output))
        for source, target, direction in batch_update.moved:
            moved, replaced = self._rows.pop(source, None), self._rows.pop(target, None)
            self._put(target, moved)
            if direction.name == "SWAP":
                self._put(source, replaced)

    def _put(self, row: int, played: _ScriptProgress | None) -> None:
        if played is None:
            self._rows.pop(row, None)
        else:
            self._rows[row] = played

    def apply(self, logits: Logits) -> Logits:
        """Mask all other tokens. vLLM calls it after its own processors, so no bias or minimum length overrides it."""
        for row, played in self._rows.items():
            token = played.script.token_at(len(played.output))
            if token is None:
                continue
            values = logits[row]
            values.fill_(float("-inf"))
            values[token] = 0.0
        return logits
