"""The configuration of the site's generator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version

from harmony_conformance.json_value import dumps
from site_sources.copied_pages import ROOT
from site_sources.markdown import lines

_FEATURES = (
    "content.code.copy",
    "navigation.footer",
    "navigation.indexes",
    "navigation.path",
    "navigation.prune",
    "navigation.sections",
    "navigation.tabs",
    "navigation.top",
    "search.highlight",
    "toc.follow",
)
"""`prune`: a page has the side bar of its family, not the entries of all others."""
_EXTENSIONS = """
[project.markdown_extensions]
attr_list = {}
def_list = {}
md_in_html = {}
toc = {permalink = true}

[project.markdown_extensions.pymdownx]
betterem = {}
emoji = {emoji_generator = "zensical.extensions.emoji.to_svg", emoji_index = "zensical.extensions.emoji.twemoji"}
highlight = {pygments_lang_class = true}
magiclink = {}
superfences = {}
"""
"""Only those that the pages use: each more takes seconds for all pages."""
_SOURCES = ("harmony_ref", "conformance", "proxy")


def settings(navigation: Sequence[object]) -> str:
    """Return the configuration as TOML."""
    return (
        "[project]\n"
        'site_name = "harmony-conformance"\n'
        'site_description = "Does a gpt-oss endpoint follow the Harmony format, in prompts and in outputs?"\n'
        'docs_dir = "pages"\n'
        'site_dir = "site"\n'
        f'copyright = "harmony-conformance {version("harmony-conformance")} · Apache-2.0"\n'
        'extra_css = ["assets/site.css"]\n'
        'extra_javascript = ["assets/site.js"]\n'
        f"nav = {_toml(navigation)}\n\n"
        "[project.plugins.mkdocstrings.handlers.python]\n"
        f"paths = {_toml([str(ROOT / name) for name in _SOURCES])}\n\n"
        "[project.plugins.mkdocstrings.handlers.python.options]\n"
        'docstring_style = "google"\n'
        "separate_signature = true\n"
        "show_bases = false\n"
        "show_root_heading = true\n"
        "show_root_full_path = false\n"
        "show_signature_annotations = true\n"
        "show_source = false\n"
        "signature_crossrefs = true\n"
        "show_attribute_values = false\n\n"
        "[project.theme]\n"
        "font = false\n"
        'logo = "docs/mark.svg"\n'
        'favicon = "docs/mark.svg"\n'
        f"features = {_toml(_FEATURES)}\n"
        f"{lines(_palette())}\n"
        f"{_EXTENSIONS}"
    )


def _palette() -> Iterator[str]:
    """Yield light and dark colours: the system's by default, and a button to change them."""
    for preference, scheme, icon, following in (
        ("", "", "lucide/sun-moon", "light colours"),
        (": light", "default", "lucide/sun", "dark colours"),
        (": dark", "slate", "lucide/moon", "the system's colours"),
    ):
        yield "\n[[project.theme.palette]]"
        yield f'media = "(prefers-color-scheme{preference})"'
        yield from (f'scheme = "{scheme}"',) if scheme else ()
        yield 'primary = "custom"'
        yield 'accent = "custom"'
        yield f'toggle.icon = "{icon}"'
        yield f'toggle.name = "Switch to {following}"'


def _toml(value: object) -> str:
    """Return lists, single-member objects and strings as TOML in one line."""
    match value:
        case list() | tuple():
            return f"[{', '.join(map(_toml, value))}]"
        case dict():
            return f"{{{', '.join(f'{dumps(name)} = {_toml(member)}' for name, member in value.items())}}}"
        case _:
            return dumps(str(value))
