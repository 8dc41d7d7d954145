"""The strata, in one table: what each is, how many cases it has, and whether it is held out whole."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from innocent import about, made
from innocent.case import HELD_OUT, TUNING, Case

Make = Callable[[random.Random, int], Case]


@dataclass(frozen=True, kw_only=True)
class Stratum:
    name: str
    about: str
    count: int
    make: Make
    held_out: bool = False


STRATA = (
    Stratum(
        name="docstrings",
        about="paragraphs of the standard library's documentation, quoted or continued",
        count=520,
        make=made.docstring,
    ),
    Stratum(
        name="library code",
        about="functions of the standard library, in a code block or bare",
        count=380,
        make=made.library_code,
    ),
    Stratum(name="licences", about="paragraphs of licence texts", count=200, make=made.licence),
    Stratum(
        name="package pages",
        about="paragraphs of package descriptions",
        count=300,
        make=made.package_page,
        held_out=True,
    ),
    Stratum(
        name="own documents",
        about="this repository's pages, which speak of markers and leaks",
        count=320,
        make=about.own_page,
    ),
    Stratum(
        name="own code",
        about="this repository's code and tests, full of markers, in a code block",
        count=300,
        make=about.own_code,
    ),
    Stratum(
        name="own code, bare",
        about="the same without a code block, asked for by what it is about",
        count=200,
        make=about.own_code_bare,
        held_out=True,
    ),
    Stratum(
        name="on Harmony",
        about="explanations of the format to people who ask about it, markers in code or bare",
        count=350,
        make=about.on_harmony,
    ),
    Stratum(
        name="markers asked for",
        about="markers that the request quotes, repeated bare",
        count=300,
        make=about.asked_for,
    ),
    Stratum(
        name="pasted leaks", about="a leak that the user pasted, quoted and explained", count=200, make=about.pasted
    ),
    Stratum(
        name="unasked markers",
        about="a marker in prose to a request that does not mention it, in code or quotes",
        count=200,
        make=about.unasked,
    ),
    Stratum(name="tokens of other models", about="ChatML, Llama and GPT-2 tokens", count=200, make=about.other_models),
    Stratum(
        name="channel words first",
        about="prose that begins with analysis, commentary or final",
        count=400,
        make=made.word_first,
    ),
    Stratum(
        name="channel words last",
        about="prose that ends with one, or has several in a row",
        count=250,
        make=made.word_last,
    ),
    Stratum(
        name="identifiers",
        about="code with assistant_final, analysisResult, finalAnswer, bare and at the very beginning",
        count=400,
        make=made.identifiers,
    ),
    Stratum(
        name="glued logs",
        about="logs, CSV and slugs that glue words together, assistantfinal among them",
        count=300,
        make=made.glued_log,
    ),
    Stratum(
        name="glued prose",
        about="prose that lost its blanks, as OCR and broken layouts write it",
        count=200,
        make=made.glued_prose,
        held_out=True,
    ),
    Stratum(name="chat logs", about="transcripts with roles, plays, interviews", count=300, make=made.chat_log),
    Stratum(
        name="languages", about="twenty languages with channel words as foreign words", count=400, make=made.language
    ),
    Stratum(
        name="Markdown", about="headings, tables and lists of analyses and final answers", count=300, make=made.markdown
    ),
    Stratum(
        name="JSON",
        about="JSON answers with members analysis, final, channel and role",
        count=300,
        make=made.json_answer,
    ),
    Stratum(
        name="markup",
        about="XML and HTML with elements analysis, reasoning, thought, and escapes",
        count=300,
        make=made.markup,
    ),
    Stratum(name="thoughts", about="reasoning that drafts, repeats or quotes the answer", count=350, make=made.thought),
    Stratum(
        name="calls", about="tool calls whose arguments hold code, escapes and channel words", count=350, make=made.call
    ),
    Stratum(
        name="calls about Harmony",
        about="tool calls whose arguments hold markers the user asked for",
        count=150,
        make=about.call,
    ),
    Stratum(
        name="calls in words",
        about="answers about declared functions: prose, code, examples that the user asks for",
        count=260,
        make=made.call_in_words,
    ),
    Stratum(
        name="first person",
        about="prose in the first person, user stories and tickets, often without reasoning",
        count=240,
        make=made.first_person,
    ),
    Stratum(
        name="long thoughts",
        about="thoughts that the limit cut: cases, candidates, tables",
        count=140,
        make=made.long_thought,
    ),
    Stratum(
        name="bars and angles",
        about="formulas and operators: <|, |>, bra-ket, pipes",
        count=200,
        make=made.bars,
        held_out=True,
    ),
    Stratum(name="short answers", about="one word or number, channel words among them", count=200, make=made.short),
    Stratum(name="repetition", about="refrains, tables, rulers, cut lists", count=200, make=made.repetition),
    Stratum(
        name="odd characters", about="emoji, right-to-left text, U+FFFD, control characters", count=150, make=made.odd
    ),
)


def corpus(sample: int | None = None, names: Collection[str] = ()) -> Iterator[Case]:
    """Every case, or about `sample` of them, spread over all strata, or over those with these names."""
    whole = sum(stratum.count for stratum in STRATA)
    for stratum in (one for one in STRATA if not names or one.name in names):
        count = stratum.count if sample is None else max(1, stratum.count * sample // whole)
        for number in range(count):
            name = f"{stratum.name}/{number}"
            case = stratum.make(random.Random(name), number)
            half = hashlib.sha256(name.encode()).digest()[0] % 2
            part = HELD_OUT if stratum.held_out or half else TUNING
            yield replace(case, stratum=stratum.name, number=number, part=part)
