"""Check the language rules of docs/style.md that a program can check.

    python tools/lint_language.py [ROOT]

Rules: a docstring does not begin with a free relative (What, Whether, ...); no stand-in words; a sentence has at
most 25 words; an exception is called `...Error`; a public class name exists once, except for the mirrors in `compat`;
the text of a file is not split by `splitlines`, which ends a line at U+2028 too, and JSON may have one in a string.
Docstrings and messages of the packages and the programs around them are checked, and the Markdown pages that are written by hand.
Each problem is one line: FILE:LINE: rule: text. Exit code 1 if there is one.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("harmony_ref/harmony_ref", "conformance/harmony_conformance", "proxy/harmony_proxy")
PROGRAMS = ("tools", "engines", "examples", "benchmarks")
PAGES = (
    "*.md",
    "docs/*.md",
    "harmony_ref/**/*.md",
    "conformance/**/*.md",
    "proxy/**/*.md",
    "engines/**/*.md",
    "golden/README.md",
    "benchmarks/README.md",
    "reports/README.md",
)
QUOTATIONS = {
    "conformance/CHECKS.md": "generated: joins condition texts, and quotes the guide",
    "conformance/EVIDENCE.md": "generated from golden data",
    "conformance/ACCOUNTING.md": "generated from a table",
    "leaks/reasoning_tags.py": "patterns of what users and models write",
    "defects/output_parsing.py": "an error text of vLLM, word for word",
    "judge/harmony_clauses.py": "sentences of the Harmony guide, word for word",
    "judge/api_clauses.py": "sentences of API references, word for word",
    "messages/builtin_tools.py": "the tool descriptions of openai-harmony, word for word",
    "docs/style.md": "names the words to avoid",
    "tools/lint_language.py": "names the words to avoid",
    "benchmarks/prose.py": "made-up answers of a model",
    "innocent/about.py": "made-up answers of a model",
    "innocent/made.py": "made-up answers of a model",
}
"""Files whose words are somebody else's, by the end of their path, and the reason."""
FREE_RELATIVES = re.compile(r"(What|Whether|Where|Who|Whom|Whose|Whoever|Whatever|How|Why)\b")
STAND_INS = re.compile(
    r"\b(told|tells?|telling|said|anew|whoever|nobody|somebody|everybody|of ours|of which|of whom|stands|goes on|comes to|"
    r"at hand|worked out|found out|in vain|of its own|lets go|beside)\b",
    re.IGNORECASE,
)
NO_NONE = re.compile(r"\b(?:is|are) none\b")
MOST_WORDS = 25
WORD = re.compile(r"[A-Za-z][\w'-]*")
SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z`*\"'(\[])|\n\s*\n|\n\s*[-*|#>]|\n\s*\d+\.\s|\n\s+(?=[\w`*]+: )")
NOT_PROSE = re.compile(
    r"```.*?```|<[a-z]+ [^>]*>|``.*?``|`[^`\n]*`|<!--.*?-->|\(https?://\S+\)|\]\([^)]*\)|https?://\S+", re.DOTALL
)
TABLE_LINE = re.compile(r"^.*\S {2,}\S.*$", re.MULTILINE)


class Problem(NamedTuple):
    """One broken rule: where, which rule, and the text."""

    path: Path
    line: int
    rule: str
    text: str


def prose_problems(path: Path, line: int, text: str) -> Iterator[Problem]:
    """Yield the stand-in words and the long sentences of a text that begins on `line`."""
    plain = NOT_PROSE.sub(lambda found: "Code" + "\n" * found.group().count("\n"), TABLE_LINE.sub("", text))
    for found in (*STAND_INS.finditer(plain), *NO_NONE.finditer(plain)):
        yield Problem(path, line + plain[: found.start()].count("\n"), "stand-in word", found.group())
    position = 0
    for sentence in SENTENCE_END.split(plain):
        start = plain.find(sentence, position)
        position = start + len(sentence)
        count = len(WORD.findall(sentence))
        if count > MOST_WORDS and "|" not in sentence and not sentence.lstrip().startswith(("def ", ">>>")):
            yield Problem(path, line + plain[:start].count("\n"), f"{count} words", " ".join(sentence.split())[:90])


def is_condition(node: ast.AST) -> bool:
    """Return True for a condition, whose docstring completes "applies to …"."""
    names = {ast.unparse(one).partition("(")[0] for one in getattr(node, "decorator_list", [])}
    return bool(names & {"condition", "evidence", "limit"})


def called_on(node: ast.AST | None, *methods: str) -> ast.expr | None:
    """Return the object on which a node calls one of these methods, None for any other node."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods:
        return node.func.value
    return None


def code_problems(path: Path, tree: ast.Module, classes: dict[str, list[tuple[Path, int]]]) -> Iterator[Problem]:
    """Yield the problems of one module, and add its public classes to `classes`."""
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for one in node.body:  # attribute docstrings count too
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                docstrings.add(id(one.value))
                text = one.value.value
                if FREE_RELATIVES.match(text) and not is_condition(node):
                    yield Problem(path, one.lineno, "first word", text.partition("\n")[0][:80])
                yield from prose_problems(path, one.lineno, text)
        if isinstance(node, ast.ClassDef):
            if not node.name.startswith("_") and "compat" not in path.parts:
                classes[node.name].append((path, node.lineno))
            bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
            if not node.name.endswith("Error") and any(base.endswith(("Error", "Exception")) for base in bases):
                yield Problem(path, node.lineno, "exception name", node.name)
    for node in ast.walk(tree):
        if called_on(called_on(node, "splitlines"), "read_text", "decode") is not None:
            yield Problem(path, node.lineno, "splitlines of a text", ast.unparse(node)[:90])
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
            and " " in node.value
        ):
            yield from (p for p in prose_problems(path, node.lineno, node.value) if p.rule == "stand-in word")


def problems(root: Path) -> Iterator[Problem]:
    """Yield every problem of the packages and the pages."""
    classes: dict[str, list[tuple[Path, int]]] = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            yield from code_problems(path, ast.parse(path.read_text("utf-8")), classes)
    for program in PROGRAMS:
        for path in sorted((root / program).rglob("*.py")):
            yield from code_problems(path, ast.parse(path.read_text("utf-8")), defaultdict(list))
    for name, places in sorted(classes.items()):
        if len(places) > 1:
            yield from (Problem(path, line, "class name used twice", name) for path, line in places)
    for pattern in PAGES:
        for path in sorted(root.glob(pattern)):
            yield from prose_problems(path, 1, path.read_text("utf-8"))


def main() -> int:
    """Print every problem; return 1 if there is one."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    found = [one for one in problems(root) if not one.path.as_posix().endswith(tuple(QUOTATIONS))]
    for one in found:
        sys.stdout.write(f"{one.path.relative_to(root)}:{one.line}: {one.rule}: {one.text}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
