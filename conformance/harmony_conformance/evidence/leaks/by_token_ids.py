"""Find leaks with the emitted ids, which distinguish special tokens, headers and content.

- A marker is a leak if its surroundings match special tokens and no ordinary ones, or if it occurs more often than these spell it.
- Header words are a leak if they are joined to text that a special token separates from them.

Comparisons ignore white space: servers trim texts, and add line breaks between messages.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from harmony_conformance.apis.text_fields import AnswerTexts, FieldKind, TextField
from harmony_conformance.evidence.leaks.markers import MARKER, unescape_markers
from harmony_conformance.evidence.leaks.reasoning_tags import TAGGED_REASONING
from harmony_conformance.json_value import InvalidJsonError, canonical_json, loads
from harmony_conformance.prompts.expected_parts import text_pieces, token_runs
from harmony_conformance.runtime.caching import bounded_cache, cached_property
from harmony_ref import decode, tokens

_AROUND = 12
_DISTINCTIVE = 8
"""The least length of a text that is searched anywhere in a field. Shorter ones count only at its beginning."""

_OPENS = frozenset({tokens.START, tokens.CHANNEL, tokens.CONSTRAIN})
_HEADER_CONTINUES = frozenset({tokens.MESSAGE, tokens.CHANNEL, tokens.CONSTRAIN})
_ENDS = tokens.STOP_TOKENS | {tokens.ENDOFTEXT}
_MODEL_TEXTS = frozenset(FieldKind) - {FieldKind.OTHER}
_SERVER_MEMBERS = ("role", "/id", "/type")
_BEGINS_A_CHANNEL = re.compile(r"(?:analysis|commentary) to=|commentary\b")
_BEHIND_A_NAME = re.compile(r"[.=\s]+")


@dataclass(kw_only=True)
class EmittedMessage:
    """An emitted message.

    Attributes:
        header: The texts between the special tokens of the header.
        has_content: True if there is a `<|message|>`.
        has_start_marker: True if the message begins with `<|start|>`, so that its header begins with a role.
    """

    header: list[str] = field(default_factory=list[str])
    text: str = ""
    has_content: bool = False
    has_start_marker: bool = False

    @property
    def role(self) -> str:
        """The role in the header, `user` for text like `User: …` without a header, else `assistant`."""
        if self.has_start_marker and self.header:
            return self.header[0].split(":")[0].strip().split(" ")[0]
        return "user" if not self.header and _SPEAKS_AS_USER.match(self.text) else "assistant"

    @property
    def is_private(self) -> bool:
        """True if it is on the analysis channel."""
        return any(part.strip().startswith("analysis") for part in self.header)

    @property
    def is_empty(self) -> bool:
        """True if it has neither header nor content yet."""
        return not (self.header or self.text or self.has_content or self.has_start_marker)


_HEADER_WORDS = re.compile(r"(?:\0|assistant|user|analysis|commentary|final)*")
_SPEAKS_AS_USER = re.compile(r"\s*(?:user|human)\s*:", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class LeakedText:
    """A leaked text and its field."""

    field: TextField
    text: str


@bounded_cache(max_length=1024, max_long_entries=16)
def parse_completion(ids: tuple[int, ...]) -> EmittedCompletion:
    """Return the parsed completion of these ids. The result is cached: several checks and APIs need it."""
    return EmittedCompletion(ids)


class EmittedCompletion:
    """A completion, parsed leniently: a header is between `<|start|>` and `<|message|>`, the content follows."""

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = ids
        self.raw = unescape_markers(decode(list(ids)))
        self.messages = tuple(_messages(ids))

    @cached_property
    def ordinary_text(self) -> str:
        """The texts of ordinary tokens, separated by NUL characters in place of special tokens."""
        return unescape_markers("\0".join(text for text, is_special in text_pieces(self._ids) if not is_special))

    @cached_property
    def contents(self) -> tuple[str, ...]:
        """The contents without white space, joined in four groups: all, all but calls, the reasoning, the texts for the user."""
        texts = [message for message in self.messages if not _is_call(message)]
        private = [message for message in texts if message.is_private]
        groups = (self.messages, texts, private, [message for message in texts if not message.is_private])
        return tuple(_squeeze(unescape_markers("".join(message.text for message in group))) for group in groups)

    def is_all_in(self, text: str) -> bool:
        """Return True if a text contains all contents, or everything but header words. White space is ignored."""
        whole, shown = _squeeze(self.ordinary_text), _squeeze(unescape_markers(text))
        in_contents = bool(self.contents[0]) and self.contents[0] in shown
        return in_contents or (bool(shown) and _HEADER_WORDS.fullmatch(whole.replace(shown, "", 1)) is not None)

    def leaked_markers(self, answer: AnswerTexts) -> Iterator[LeakedText]:
        """Yield special tokens that reached a field as text. The same letters in ordinary tokens are content."""
        texts = [(one, unescape_markers(one.text)) for one in answer.fields]
        has_leak = False
        for one, text in texts:
            for marker in MARKER.finditer(text):
                if self._is_special(text, marker.start(), marker.end()):
                    has_leak = True
                    yield LeakedText(field=one, text=marker.group())
                    break
        if not has_leak:
            yield from self._surplus(texts)

    def _is_special(self, text: str, start: int, end: int) -> bool:
        """Return True if a marker with its surroundings matches a special token of the ids, and no ordinary tokens."""
        nearby = [text[max(0, start - around) : end + around] for around in (_AROUND, 4, 1)]
        return nearby[0] not in self.ordinary_text and any(
            near in self.raw and near not in self.ordinary_text for near in nearby
        )

    def _surplus(self, texts: Sequence[tuple[TextField, str]]) -> Iterator[LeakedText]:
        """Yield markers that occur more often than in ordinary tokens, in one field or in all texts that a client reads.

        Repeated texts are counted once: keys of arguments, which are in the arguments' text too, and a call that is returned twice.
        """
        if not any("<|" in text for _, text in texts):
            return
        allowed = Counter(MARKER.findall(self.ordinary_text))
        total: Counter[str] = Counter()
        seen: set[str] = set()
        for one, text in texts:
            own = Counter(MARKER.findall(text))
            value = _canonical(text) if one.kind is FieldKind.ARGUMENTS else text
            is_key = one.kind is FieldKind.NAME and one.where.endswith("/arguments")
            if one.kind is not FieldKind.OTHER and value not in seen and not is_key:
                total += own
            seen.add(value)
            if own - allowed:
                yield LeakedText(field=one, text=next(iter(own - allowed)))
                return
        for marker in total - allowed:
            yield LeakedText(field=next(one for one, text in texts if marker in text), text=marker)

    def leaked_header_words(self, answer: AnswerTexts) -> Iterator[LeakedText]:
        """Yield header words in a field that are joined to text which a special token separated."""
        seams = tuple(self._seams())
        for one in answer.fields:
            if one.kind not in _MODEL_TEXTS or one.where.endswith(_SERVER_MEMBERS):
                continue
            text = _squeeze(unescape_markers(one.text))
            if (leaked := next((seam for seam in seams if seam.is_in(text)), None)) is not None:
                yield LeakedText(field=one, text=leaked.text)

    def _seams(self) -> Iterator[SkippedToken]:
        """Yield texts that can only occur if a special token was skipped."""
        before = ""
        for message in self.messages:
            for seam in _seams_of(message, before):
                if seam.text and not any(seam.text in joined for joined in self.contents):
                    yield seam
            before = _squeeze(unescape_markers(message.text))[-_AROUND:] or before

    def leaked_reasoning(self, answer: AnswerTexts) -> Iterator[LeakedText]:
        """Yield contents with the text of an analysis message, or with reasoning tags that the model did not emit."""
        shown = self.contents[-1]
        private = [message for message in self.messages if message.is_private and not _is_call(message)]
        for one in answer.fields:
            if one.kind is not FieldKind.CONTENT:
                continue
            text = _squeeze(unescape_markers(one.text))
            wrapped = TAGGED_REASONING.match(one.text)
            tagged = wrapped is not None and f"<{wrapped[1]}>" not in self.ordinary_text
            for message in private:
                thought = _squeeze(unescape_markers(message.text))
                is_added = bool(thought) and text.count(thought) > shown.count(thought)
                if tagged or (is_added and len(thought) >= _DISTINCTIVE):
                    yield LeakedText(field=one, text=message.text)
                    break

    def broken_fields(self, answer: AnswerTexts) -> Iterator[LeakedText]:
        """Yield fields with U+FFFD although the ids decode to complete characters."""
        if _REPLACEMENT not in self.raw:
            for one in answer.fields:
                if one.kind in _MODEL_TEXTS and _REPLACEMENT in one.text:
                    yield LeakedText(field=one, text=_REPLACEMENT)

    def missing_markers(self, answer: AnswerTexts) -> Iterator[str]:
        """Yield markers that the model spelled in ordinary tokens for the user, and that are missing in the fields."""
        expected = Counter(
            marker
            for message in self.messages
            if message.role == "assistant" and not message.is_private and not _is_call(message)
            for marker in MARKER.findall(unescape_markers(message.text))
        )
        if expected:
            yield from expected - Counter(
                MARKER.findall("\0".join(unescape_markers(one.text) for one in answer.fields))
            )

    def leaked_other_roles(self, answer: AnswerTexts) -> Iterator[LeakedText]:
        """Yield contents with text that the model emitted under another role."""
        own = _squeeze("".join(message.text for message in self.messages if message.role == "assistant"))
        for message in self.messages:
            words = _squeeze(unescape_markers(message.text))
            if message.role not in _OTHERS or not words or words in own:
                continue
            for one in answer.fields:
                if one.kind is FieldKind.CONTENT and words in _squeeze(one.text):
                    yield LeakedText(field=one, text=message.text)


_REPLACEMENT = "\ufffd"
_OTHERS = frozenset({"user", "system", "developer", "tool"})


@dataclass(frozen=True, kw_only=True)
class SkippedToken:
    """A text that shows that a special token was skipped, without white space.

    Attributes:
        is_before: True if the token is before the text, otherwise within it.
    """

    text: str
    is_before: bool = False

    def is_in(self, shown: str) -> bool:
        """Return True if a text without white space contains this one, and the token is missing."""
        if len(self.text) < _DISTINCTIVE:
            return shown.startswith(self.text)
        return re.search((r"(?<!\|>)" if self.is_before else "") + re.escape(self.text), shown) is not None


def _seams_of(message: EmittedMessage, before: str) -> Iterator[SkippedToken]:
    parts = [part for part in message.header if part.strip()]
    if not parts:
        return
    if before:
        yield SkippedToken(text=before + parts[0].split()[0])
    for one, other in pairwise(parts):
        yield SkippedToken(text=_BEHIND_A_NAME.split(one.strip())[-1] + other.split()[0])
    if message.has_content:
        last = parts[-1].split()[-1] + _squeeze(unescape_markers(message.text))[:_AROUND]
        yield from (SkippedToken(text=last, is_before=not message.text.strip()), SkippedToken(text=f"assistant{last}"))
    elif _BEGINS_A_CHANNEL.match(parts[-1]):
        yield SkippedToken(text=_squeeze(parts[-1]), is_before=True)


def _is_call(message: EmittedMessage) -> bool:
    return any("to=" in part for part in message.header)


def _canonical(arguments: str) -> str:
    """Return arguments as canonical JSON, so that reformatted ones are equal; invalid JSON unchanged."""
    try:
        return canonical_json(loads(arguments))
    except InvalidJsonError:
        return arguments


def _squeeze(text: str) -> str:
    return "".join(text.split())


def _messages(ids: Sequence[int]) -> Iterator[EmittedMessage]:
    """Split ids into messages. Text outside of headers and contents becomes the content of a message without header."""
    message, inside, opened = EmittedMessage(), False, False
    segments = [(run[0], "") if is_special else (None, decode(run)) for run, is_special in token_runs(ids)]
    for position, (token, text) in enumerate(segments):
        following = segments[position + 1][0] if position + 1 < len(segments) else None
        if token is None and not inside and (opened or following in _HEADER_CONTINUES):
            message.header.append(text)
        elif token is None:
            message.text += text
        elif token == tokens.MESSAGE and not inside:
            inside = message.has_content = True
        elif token in _ENDS or token == tokens.START or (inside and token in _OPENS):
            if not message.is_empty:
                yield message
            message = EmittedMessage(has_start_marker=token == tokens.START)
            inside, opened = False, token in _OPENS
        elif token in _OPENS:
            opened = True
    if not message.is_empty:
        yield message
