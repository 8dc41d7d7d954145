"""A page for each check, cause, defect and scenario, and an index of each kind and of each family."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from harmony_conformance.causes.explanation import Section, explain
from harmony_conformance.causes.known import catalogue, engine_causes
from harmony_conformance.checks import CHECKS
from harmony_conformance.golden.scenario import Scenario
from harmony_conformance.reference_server.defects import DEFECTS
from harmony_conformance.report.summary import family_about
from harmony_conformance.runner.selection import load_scenarios
from site_sources.markdown import code, escape, write_page

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "checks": "A requirement, its clause, an example right and wrong, and the engines that are known to break it.",
        "causes": "A known fault of a real engine: versions, threads, remedy.",
        "defects": "A fault that the reference server can switch on. Families are those of the checks that fail.",
        "scenarios": "The requests of a run, and the checks that they exercise.",
    }
)
CATALOGUE = "catalogue"
_TITLES = {CATALOGUE: "Catalogue of published faults"}
_LONGEST_ITEM = 160
_TOLD_ELSEWHERE = frozenset(
    {
        *("right", "wrong", "in the catalogue", "checks that fail", "defects that make it fail"),
        *("engines known to have it", "engines known to have one of them", "checks that known defects make fail in it"),
    }
)
"""Sections that a search leaves out: examples, and sentences of other pages."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """Pages of one kind that share a side bar: their names, by the name of the family."""

    kind: str
    name: str
    pages: Mapping[str, Sequence[Section]]

    @property
    def title(self) -> str:
        """Title of its index."""
        return _TITLES.get(self.name, self.name)


def families() -> Mapping[str, tuple[Family, ...]]:
    """Return the families of each kind, by name; the catalogue comes last."""
    scenarios = {scenario.name: scenario for scenario in load_scenarios()}
    groups: dict[str, dict[str, dict[str, Sequence[Section]]]] = {kind: {} for kind in KINDS}
    for name, kind in sorted(kinds().items()):
        sections = explain(name, scenarios)
        groups[kind].setdefault(_family(name, kind, sections, scenarios), {})[name] = sections
    return {
        kind: tuple(
            Family(kind=kind, name=name, pages=of_kind[name])
            for name in sorted(of_kind, key=lambda name: (name == CATALOGUE, name))
        )
        for kind, of_kind in groups.items()
    }


@cache
def kinds() -> Mapping[str, str]:
    """Return the kind of each id."""
    return {
        **{scenario.name: "scenarios" for scenario in load_scenarios()},
        **dict.fromkeys(DEFECTS, "defects"),
        **dict.fromkeys(catalogue(), "causes"),
        **{cause.id: "causes" for causes in engine_causes().values() for cause in causes},
        **{check.id: "checks" for check in CHECKS},
    }


def _family(name: str, kind: str, sections: Sequence[Section], scenarios: Mapping[str, Scenario]) -> str:
    match kind:
        case "checks":
            return name.partition(".")[0]
        case "causes":
            return CATALOGUE if name in catalogue() else note_of(sections)
        case "defects":
            failing = next(texts for heading, texts in sections if heading == "checks that fail")
            return Counter(check.partition(".")[0] for check in failing).most_common(1)[0][0]
        case _:
            return scenarios[name].api


def write_explanations(folder: Path, of_kinds: Mapping[str, Sequence[Family]]) -> None:
    """Write the pages of all families, and the indexes."""
    kind_of = kinds()
    for kind, about in KINDS.items():
        rows = (
            line
            for family in of_kinds[kind]
            for line in (f"## [{escape(family.title)}]({family.name}/index.md)\n", *_index(family, kind_of, ""))
        )
        write_page(folder / kind / "index.md", (f"# {kind.capitalize()}\n", f"{about}\n", *rows))
        for family in of_kinds[kind]:
            title = f"{family.title}: {kind}" if family.name != CATALOGUE else family.title
            about_family = f"{family_about(family.name)}\n" if kind in ("checks", "defects") else ""
            write_page(
                folder / kind / family.name / "index.md",
                (f"# {escape(title)}\n", about_family, *_index(family, kind_of, "../")),
            )
            for name, sections in family.pages.items():
                write_page(folder / kind / f"{name}.md", _page(name, sections, kind_of))


def note_of(sections: Sequence[Section]) -> str:
    """Return the text in brackets in the first heading: the severity of a check, the engine of a cause."""
    return sections[0][0].partition("(")[2].removesuffix(")")


def _index(family: Family, kind_of: Mapping[str, str], up: str) -> Iterator[str]:
    """Yield a row for each page of a family: its first sentence."""
    for name, sections in family.pages.items():
        note, sentence = note_of(sections), sections[0][1][0]
        shown = (
            f"**{note.lower()}** · "
            if family.kind == "checks"
            else f"{escape(note)}: "
            if family.name == CATALOGUE
            else ""
        )
        yield f"- [`{name}`]({up}{name}.md): {shown}{_named(sentence, kind_of, f'../{up}')}"
    yield ""


def _page(name: str, sections: Sequence[Section], kind_of: Mapping[str, str]) -> Iterator[str]:
    yield f"# {name}\n"
    for heading, paragraphs in sections:
        shown = [_named(paragraph, kind_of, "../") for paragraph in paragraphs if paragraph]
        if shown:
            title = escape(re.sub(r" +", " ", heading.replace(name, "")).strip())
            mark = " { data-search-exclude }" if heading in _TOLD_ELSEWHERE else ""
            yield f"*{title}*\n" if name in heading else f"## {title[:1].upper()}{title[1:]}{mark}\n"
        blocks = any(paragraph.startswith("```") for paragraph in shown)
        bullet = "- " if len(shown) > 1 and not blocks and max(map(len, paragraphs)) <= _LONGEST_ITEM else ""
        yield from (f"{bullet}{paragraph}{'' if bullet else chr(10)}" for paragraph in shown)
        yield ""
    yield f"`harmony-conformance explain {name}` prints this page."


def _named(paragraph: str, kind_of: Mapping[str, str], up: str) -> str:
    """Return a paragraph of plain text as Markdown: code and JSON as code, a link for each id and address."""
    if paragraph.startswith(("{", "[", "data:", "event:")):
        language = "json" if paragraph.startswith(("{", "[")) else "text"
        return f"```{language}\n{paragraph}\n```"

    def link(word: re.Match[str]) -> str:
        name = word[0]
        kind = kind_of.get(name) if re.search(r"[._-]", name) else None
        return f"[{escape(name)}]({up}{kind}/{name}.md)" if kind else escape(name)

    def change(place: int, part: str) -> str:
        if place % 2 == 0:
            return re.sub(r"[\w.-]*\w|[^\w]+", link, part)
        return f"<{part}>" if part.startswith("http") else code(part.strip("`"))

    parts = re.split(r"(https?://[^\s,]+|`[^`\n]+`|golden/[\w./-]+\.json)", paragraph)
    return "".join(change(place, part) for place, part in enumerate(parts)).replace("\n", "  \n")
