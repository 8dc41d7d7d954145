"""A logits processor for vLLM (V1 model runner): the model's output is chosen by the request, token by token.

    vllm serve MODEL --logits-processors harmony_conformance.vllm_script:ScriptedLogits
    {"messages": [...], "vllm_xargs": {"harmony_script": [200005, 17196, 200008, 13225, 200002]}}

Whatever the weights are, the server then generates exactly `harmony_script` and after it `harmony_script_then`
(<|endoftext|> when absent) until something stops it: what its Harmony parser makes of known tokens can be judged.
With `harmony_script_then: "model"` the script only begins the answer and the weights, under whatever grammar there is, end it.
A script may be a text as well, its ids with spaces between them: vLLM 0.11.0 takes no lists in `vllm_xargs`.
A request without `harmony_script` is untouched. A script that cannot be played is refused with HTTP 400.

The file stands alone so that it can be installed beside any vLLM. Without vLLM it imports as well; the class then has
no base and is only good for tests. Interface read in vllm 0.11.0, where nobody asks before it is queued whether a script can be
played, and in 0.32.0, vllm/v1/sample/logits_processor/interface.py; the V2 model runner (GPU only in that release) has an
interface of its own and refuses this class when the server starts.

Error: ScriptError(field, actual, expected), a ValueError because vLLM answers those with HTTP 400.
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
"""Rows of gpt-oss's embedding; vLLM validates a request before it says which model the request is for."""


class VllmScriptError(ValueError):
    """A script that cannot be played: which field, what it held, what would have been right."""

    def __init__(self, field: str, actual: object, expected: str) -> None:
        super().__init__(f"vllm_xargs.{field}: {actual!r} is not {expected}")
        self.field = field
        self.actual = actual
        self.expected = expected


@dataclass(frozen=True, kw_only=True)
class Script:
    """The token ids to generate, and the one to repeat after them; None leaves the rest to the weights."""

    ids: tuple[int, ...]
    then: int | None = ENDOFTEXT

    def token_at(self, position: int) -> int | None:
        """The token to generate after `position` tokens, None where any will do."""
        return self.ids[position] if position < len(self.ids) else self.then


def read_script(extra: Mapping[str, object] | None) -> Script | None:
    """The script of a request's `vllm_xargs`, None where it has none.

    Raises:
        ScriptError: the script is no list of gpt-oss token ids, what follows it is none, or it follows nothing.
    """
    if not extra or not extra.keys() & {SCRIPT, THEN}:
        return None
    if SCRIPT not in extra:
        raise VllmScriptError(THEN, extra[THEN], f"of use without {SCRIPT}")
    ids = _listed(extra[SCRIPT])
    if not _is_list(ids):
        raise VllmScriptError(SCRIPT, ids, "a list of token ids")
    then = extra.get(THEN, ENDOFTEXT)
    return Script(
        ids=tuple(_token(f"{SCRIPT}[{position}]", value) for position, value in enumerate(ids)),
        then=None if then == MODEL else _token(THEN, then),
    )


def _listed(written: object) -> object:
    """The ids that a text names; anything else as it is."""
    words = written.split() if isinstance(written, str) else []
    return [int(word) for word in words] if words and all(map(str.isdecimal, words)) else written


def _is_list(value: object) -> TypeGuard[list[object] | tuple[object, ...]]:
    return isinstance(value, list | tuple)


def _token(field: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < VOCABULARY:
        raise VllmScriptError(field, value, f"a token id, 0 to {VOCABULARY - 1}")
    return value


class SamplingParams(Protocol):
    """What is read of vLLM's class: the request's `vllm_xargs`."""

    extra_args: Mapping[str, object] | None


class Direction(Protocol):
    """vLLM's MoveDirectionality: its member's name is SWAP or UNIDIRECTIONAL."""

    name: str


class BatchUpdate(Protocol):
    """Which rows of the batch changed hands since the last step."""

    removed: Sequence[int]
    added: Sequence[tuple[int, SamplingParams, Sequence[int] | None, Sequence[int]]]
    moved: Sequence[tuple[int, int, Direction]]


class Row(Protocol):
    """One request's logits, a tensor of `VOCABULARY` values."""

    def fill_(self, value: float, /) -> object:
        """Set every value."""
        ...

    def __setitem__(self, token: int, value: float, /) -> None: ...


class Logits(Protocol):
    """The batch's logits, one row for each request."""

    def __getitem__(self, row: int, /) -> Row: ...


@dataclass(frozen=True, kw_only=True)
class _Played:
    script: Script
    output: Sequence[int]
    """vLLM's own list, growing as tokens come. Its length is the position even after a preemption, when the request is
    added anew, and under asynchronous scheduling, when the last values are placeholders."""


class ScriptedLogits(LogitsProcessor):
    """Leaves one possible token to every scripted request, and all of them to the others."""

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Called for each request before it is queued; ScriptError becomes HTTP 400."""
        read_script(sampling_params.extra_args)

    def __init__(self, vllm_config: object, device: object, is_pin_memory: object) -> None:
        del vllm_config, device, is_pin_memory
        self._rows: dict[int, _Played] = {}

    def is_argmax_invariant(self) -> bool:
        """False: vLLM skips processors that say otherwise when a request is sampled greedily."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow the requests through the rows of the batch: removed, then added, then moved, as vLLM demands."""
        if batch_update is None:
            return
        for row in batch_update.removed:
            self._rows.pop(row, None)
        for row, params, _prompt, output in batch_update.added:
            script = read_script(params.extra_args)
            self._put(row, None if script is None else _Played(script=script, output=output))
        for source, target, direction in batch_update.moved:
            moved, replaced = self._rows.pop(source, None), self._rows.pop(target, None)
            self._put(target, moved)
            if direction.name == "SWAP":
                self._put(source, replaced)

    def _put(self, row: int, played: _Played | None) -> None:
        if played is None:
            self._rows.pop(row, None)
        else:
            self._rows[row] = played

    def apply(self, logits: Logits) -> Logits:
        """Called last of vLLM's processors, so no bias or minimum length outweighs the script."""
        for row, played in self._rows.items():
            token = played.script.token_at(len(played.output))
            if token is None:
                continue
            values = logits[row]
            values.fill_(float("-inf"))
            values[token] = 0.0
        return logits
