"""One request of the shard, token by token: what the teleprompter emits, as text, and why it ends. As `FlashCausalLM` of TGI 3.3.7 does both."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from harmony_conformance.engines.teleprompter.script import simulate_output, token_by_code
from harmony_ref import decode, tokens

STOP_IDS = frozenset({tokens.RETURN, tokens.ENDOFTEXT, tokens.CALL})
"""`eos_token_id` of gpt-oss's generation_config.json."""
LENGTH, EOS_TOKEN, STOP_SEQUENCE = range(3)
_BEFORE = 5  # tokens of the prompt that are decoded with the first token of the answer
_KEPT, _CUT = 300, 200  # characters in which stop strings are looked for
_NO_TOOL = '{"function": {"_name": "no_tool"}}'
_CALL = re.compile(r"to=functions\.([^\s<]+)(?:(?!<\|message\|>).)*<\|message\|>(.*?)(?:<\||$)", re.DOTALL)
_FINAL = re.compile(r"<\|channel\|>final(?:(?!<\|message\|>).)*<\|message\|>(.*?)(?:<\||$)", re.DOTALL)


class Tokenizer(Protocol):
    """The tokenizer of the checkpoint."""

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]: ...

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str: ...

    def is_special(self, token: int) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class Step:
    """One token of an answer; `end` with the last one: the whole text and the reason."""

    token: int
    text: str
    is_special: bool
    end: tuple[str, int] | None = None


@dataclass(kw_only=True)
class Running:
    """A request that is being answered.

    `forced`: the tokens of the answer under a grammar, empty without one.
    """

    tokenizer: Tokenizer
    prompt: Sequence[int]
    limit: int
    stop_strings: Sequence[str] = ()
    ignores_stop_ids: bool = False
    forced: Sequence[int] = ()
    ids: list[int] = field(init=False)
    _tail: str = ""

    def __post_init__(self) -> None:
        self.ids = list(self.prompt)
        self._from, self._read = len(self.ids) - _BEFORE, len(self.ids)

    @property
    def count(self) -> int:
        """The number of generated tokens."""
        return len(self.ids) - len(self.prompt)

    def step(self) -> Step:
        """Generate one token."""
        token = self.forced[self.count] if self.count < len(self.forced) else simulate_output(self.ids, 1)[0]
        self.ids.append(token)
        text, self._from, self._read = self._decode(self._from, self._read)
        reason = self._reason(token, text)
        end = None
        if reason is not None:
            begin = len(self.ids) - self.count
            end = self._decode(begin - 1, begin, skip_special_tokens=True)[0], reason
        return Step(token=token, text=text, is_special=self.tokenizer.is_special(token), end=end)

    def _decode(self, begin: int, read: int, *, skip_special_tokens: bool = False) -> tuple[str, int, int]:
        """Return the text after `read`, none while it ends within a character, and the two places for the next token."""
        before = self.tokenizer.decode(self.ids[begin:read], skip_special_tokens=skip_special_tokens)
        text = self.tokenizer.decode(self.ids[begin:], skip_special_tokens=skip_special_tokens)
        if len(text) > len(before) and not text.endswith("\N{REPLACEMENT CHARACTER}"):
            return text[len(before) :], read, len(self.ids)
        return "", begin, read

    def _reason(self, token: int, text: str) -> int | None:
        if self.count >= self.limit:
            return LENGTH
        if token in STOP_IDS and not self.ignores_stop_ids:
            return EOS_TOKEN
        self._tail += text
        if len(self._tail) > _KEPT:
            self._tail = self._tail[-_CUT:]
        ends = any(re.search(f"{re.escape(stop)}$", self._tail) for stop in self.stop_strings)
        return STOP_SEQUENCE if ends else None


def find_script(prompt: Sequence[int]) -> list[int]:
    """Return the script in a prompt, wherever it is; TGI puts text behind it if the request has functions."""
    spoken = [token_by_code().get(token, token) for token in prompt]
    stops = [place for place, token in enumerate(spoken) if token == tokens.RETURN]
    begins = [place for place in stops if place + 1 not in stops and any(later > place for later in stops)]
    return spoken[begins[-1] + 1 : min(later for later in stops if later > begins[-1])] if begins else []


def wanted_texts(prompt: Sequence[int]) -> Iterable[str]:
    """Yield the script of a prompt in the forms that TGI asks for: its first call, else its answer without a call."""
    script = decode(find_script(prompt))
    if call := _CALL.search(script):
        name, arguments = call.groups()
        rest = arguments.strip().removeprefix("{").lstrip()
        yield f'{{"function": {{"_name": {json.dumps(name)}{"" if rest.startswith("}") else ", "}{rest}}}'
        return
    if answer := _FINAL.search(script):
        yield answer[1]
    yield _NO_TOOL
