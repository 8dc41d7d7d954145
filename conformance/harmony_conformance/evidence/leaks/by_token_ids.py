"""Leaks by evidence: the emitted ids are known, so what was special, what a header and what content is known too.

A marker leaks where a field shows it as the ids do with their special tokens spelled, and not as ordinary tokens do; or where the fields hold more of
it than ordinary tokens spell. Words of a header leak where they stand in a field next to the text that a special token parts them from. Blanks are left
out where texts are compared: servers trim, and put line ends between messages.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from harmony_conformance.apis.text_fields import AnswerTexts, FieldKind, TextField
from harmony_conformance.evidence.leaks.markers import MARKER, readable
from harmony_conformance.evidence.leaks.reasoning_tags import WRAPPED
from harmony_conformance.json_value import InvalidJsonError, canonical, loads
from harmony_conformance.prompts.prompt_parser import pieces, runs
from harmony_conformance.runtime.caching import bounded_cache, cached_property
from harmony_ref import decode, tokens

_AROUND = 12
_TELLING = 8
"""How long a text has to be to be looked for anywhere in a field, and not only at its beginning."""

_OPENS = frozenset({tokens.START, tokens.CHANNEL, tokens.CONSTRAIN})
_GO_ON = frozenset({tokens.MESSAGE, tokens.CHANNEL, tokens.CONSTRAIN})
_ENDS = tokens.STOP_TOKENS | {tokens.ENDOFTEXT}
_TEXT_OF_A_MODEL = frozenset({FieldKind.CONTENT, FieldKind.REASONING, FieldKind.NAME, FieldKind.ARGUMENTS})
_OF_THE_SERVER = ("role", "/id", "/type")
_BEGINS_A_CHANNEL = re.compile(r"(?:analysis|commentary) to=|commentary\b")
_BEHIND_A_NAME = re.compile(r"[.=\s]+")


@dataclass(kw_only=True)
class EmittedMessage:
    """A message as it was emitted: the ordinary texts of its header, one between two special tokens each, and its content.

    `is_named`: a `<|start|>` stood before it, so that its header begins with a role.
    """

    header: list[str] = field(default_factory=list[str])
    text: str = ""
    has_content: bool = False
    is_named: bool = False

    @property
    def role(self) -> str:
        """The role that the header names, or that a text without a header takes; else the assistant's."""
        if self.is_named and self.header:
            return self.header[0].split(":")[0].strip().split(" ")[0]
        return "user" if not self.header and _SPEAKS_AS_USER.match(self.text) else "assistant"

    @property
    def is_private(self) -> bool:
        """Whether it stands on the analysis channel."""
        return any(part.strip().startswith("analysis") for part in self.header)

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it was emitted yet."""
        return not (self.header or self.text or self.has_content or self.is_named)


_HEADER_WORDS = re.compile(r"(?:\0|assistant|user|analysis|commentary|final)*")
_SPEAKS_AS_USER = re.compile(r"\s*(?:user|human)\s*:", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Leaked:
    """What reached a field, and the field."""

    field: TextField
    text: str


@bounded_cache(most=256, longest=1024, most_long=16)
def emitted(ids: tuple[int, ...]) -> Emitted:
    """The completion that these ids are, read once for all the checks that ask, and for all the APIs that tell it."""
    return Emitted(ids)


class Emitted:
    """A completion, read without any rule of the format but this: headers stand between `<|start|>` and `<|message|>`, contents behind it."""

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = ids
        self.raw = readable(decode(list(ids)))
        self.messages = tuple(_messages(ids))

    @cached_property
    def ordinary(self) -> str:
        """The texts of ordinary tokens, parted where special tokens stood."""
        return readable("\0".join(text for text, is_special in pieces(self._ids) if not is_special))

    @cached_property
    def contents(self) -> tuple[str, ...]:
        """The contents without their blanks, joined as servers join them: all, all but calls, the reasoning, and what was written for the user."""
        talk = [message for message in self.messages if not _is_call(message)]
        private = [message for message in talk if message.is_private]
        groups = (self.messages, talk, private, [message for message in talk if not message.is_private])
        return tuple(_squeezed(readable("".join(message.text for message in group))) for group in groups)

    def is_all_in(self, text: str) -> bool:
        """Whether all that is no header stands in a text, blanks aside; of a header without `<|message|>`, what follows its words."""
        whole, told = _squeezed(self.ordinary), _squeezed(readable(text))
        in_contents = bool(self.contents[0]) and self.contents[0] in told
        return in_contents or (bool(told) and _HEADER_WORDS.fullmatch(whole.replace(told, "", 1)) is not None)

    def markers(self, answer: AnswerTexts) -> Iterator[Leaked]:
        """Special tokens that reached a field as text; the same letters in ordinary tokens are content."""
        texts = [(one, readable(one.text)) for one in answer.fields]
        found = False
        for one, text in texts:
            for marker in MARKER.finditer(text):
                if self._is_special(text, marker.start(), marker.end()):
                    found = True
                    yield Leaked(field=one, text=marker.group())
                    break
        if not found:
            yield from self._surplus(texts)

    def _is_special(self, text: str, start: int, end: int) -> bool:
        """Whether a marker of a field stands, with what is around it, where the ids have a special token, and nowhere in ordinary ones."""
        nearby = [text[max(0, start - around) : end + around] for around in (_AROUND, 4, 1)]
        return nearby[0] not in self.ordinary and any(near in self.raw and near not in self.ordinary for near in nearby)

    def _surplus(self, texts: Sequence[tuple[TextField, str]]) -> Iterator[Leaked]:
        """Markers that stand in one field, or in all that a client reads, more often than ordinary tokens spell them.

        What a client reads twice is counted once: the keys of arguments, which stand in their text too, and a call that is returned again.
        """
        if not any("<|" in text for _, text in texts):
            return
        allowed = Counter(MARKER.findall(self.ordinary))
        told: Counter[str] = Counter()
        once: set[str] = set()
        for one, text in texts:
            own = Counter(MARKER.findall(text))
            same = _value(text) if one.place is FieldKind.ARGUMENTS else text
            if one.place is not FieldKind.OTHER and same not in once and not _is_key(one):
                told += own
            once.add(same)
            if own - allowed:
                yield Leaked(field=one, text=next(iter(own - allowed)))
                return
        for marker in told - allowed:
            yield Leaked(field=next(one for one, text in texts if marker in text), text=marker)

    def words(self, answer: AnswerTexts) -> Iterator[Leaked]:
        """Words of headers that stand in a field next to what a special token parted them from."""
        seams = tuple(self._seams())
        for one in answer.fields:
            if one.place not in _TEXT_OF_A_MODEL or one.where.endswith(_OF_THE_SERVER):
                continue
            text = _squeezed(readable(one.text))
            leaked = next((seam for seam in seams if _holds(text, seam)), None)
            if leaked is not None:
                yield Leaked(field=one, text=leaked)

    def _seams(self) -> Iterator[str]:
        """The texts that only stand there where a special token was left out between them, blanks left out as well."""
        before = ""
        for message in self.messages:
            for seam in _seams_of(message, before):
                if seam and not any(seam in joined for joined in self.contents):
                    yield seam
            before = _squeezed(readable(message.text))[-_AROUND:] or before

    def thoughts(self, answer: AnswerTexts) -> Iterator[Leaked]:
        """Contents with the text of an analysis message, or with tags around one, that the model did not write for anybody."""
        shown = self.contents[-1]
        private = [message for message in self.messages if message.is_private and not _is_call(message)]
        for one in answer.fields:
            if one.place is not FieldKind.CONTENT:
                continue
            text = _squeezed(readable(one.text))
            wrapped = WRAPPED.match(one.text)
            tagged = wrapped is not None and f"<{wrapped[1]}>" not in self.ordinary
            for message in private:
                thought = _squeezed(readable(message.text))
                told_more = bool(thought) and text.count(thought) > shown.count(thought)
                if tagged or (told_more and len(thought) >= _TELLING):
                    yield Leaked(field=one, text=message.text)
                    break

    def broken(self, answer: AnswerTexts) -> Iterator[Leaked]:
        """Fields with U+FFFD although the ids decode to whole characters."""
        if _REPLACEMENT not in self.raw:
            for one in answer.fields:
                if one.place in _TEXT_OF_A_MODEL and _REPLACEMENT in one.text:
                    yield Leaked(field=one, text=_REPLACEMENT)

    def unsaid(self, answer: AnswerTexts) -> Iterator[str]:
        """Markers that were spelled in ordinary tokens, in texts for the user, and that no field holds as often."""
        wanted = Counter(
            marker
            for message in self.messages
            if message.role == "assistant" and not message.is_private and not _is_call(message)
            for marker in MARKER.findall(readable(message.text))
        )
        if not wanted:
            return
        told = Counter(marker for one in answer.fields for marker in MARKER.findall(readable(one.text)))
        yield from wanted - told

    def run_on(self, answer: AnswerTexts) -> Iterator[Leaked]:
        """Texts that the model wrote in another role's name and that stand in the content."""
        own = _squeezed("".join(message.text for message in self.messages if message.role == "assistant"))
        for message in self.messages:
            words = _squeezed(readable(message.text))
            if message.role not in _OTHERS or not words or words in own:
                continue
            for one in answer.fields:
                if one.place is FieldKind.CONTENT and words in _squeezed(one.text):
                    yield Leaked(field=one, text=message.text)


_REPLACEMENT = "\ufffd"
_OTHERS = frozenset({"user", "system", "developer", "tool"})


def _seams_of(message: EmittedMessage, before: str) -> Iterator[str]:
    parts = [part for part in message.header if part.strip()]
    if not parts:
        return
    if before:
        yield before + parts[0].split()[0]
    for one, other in pairwise(parts):
        yield _BEHIND_A_NAME.split(one.strip())[-1] + other.split()[0]
    if message.has_content:
        last = parts[-1].split()[-1] + _squeezed(readable(message.text))[:_AROUND]
        yield from (last, f"assistant{last}")
    elif _BEGINS_A_CHANNEL.match(parts[-1]):
        yield _squeezed(parts[-1])


def _is_call(message: EmittedMessage) -> bool:
    return any("to=" in part for part in message.header)


def _holds(text: str, seam: str) -> bool:
    return seam in text if len(seam) >= _TELLING else text.startswith(seam)


def _is_key(one: TextField) -> bool:
    return one.place is FieldKind.NAME and one.where.endswith("/arguments")


def _value(arguments: str) -> str:
    """Arguments in one spelling, so that those that were written anew are the same; the text itself, where it is no JSON."""
    try:
        return canonical(loads(arguments))
    except InvalidJsonError:
        return arguments


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _messages(ids: Sequence[int]) -> Iterator[EmittedMessage]:
    """Cut into messages. Words between two messages that are no header are a text of nobody's: they have to be shown, or may be."""
    message, inside, opened = EmittedMessage(), False, False
    runs = tuple(_runs(ids))
    for position, (token, text) in enumerate(runs):
        following = runs[position + 1][0] if position + 1 < len(runs) else None
        if token is None and not inside and (opened or following in _GO_ON):
            message.header.append(text)
        elif token is None:
            message.text += text
        elif token == tokens.MESSAGE and not inside:
            inside = message.has_content = True
        elif token in _ENDS or token == tokens.START or (inside and token in _OPENS):
            if not message.is_empty:
                yield message
            message = EmittedMessage(is_named=token == tokens.START)
            inside, opened = False, token in _OPENS
        elif token in _OPENS:
            opened = True
    if not message.is_empty:
        yield message


def _runs(ids: Sequence[int]) -> Iterator[tuple[int | None, str]]:
    """Each special token, and the text of the ordinary ones between two of them (with None)."""
    for run, is_special in runs(ids):
        yield (run[0], "") if is_special else (None, decode(run))
