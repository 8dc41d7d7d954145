"""Options of the commands about the format itself: `render`, `parse`, `golden`, `teleprompter`."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Sequence
from datetime import date
from pathlib import Path

CONVERSATION_FORMS = ("auto", "harmony", "chat", "responses", "messages", "ollama", "ollama-generate", "tgi")
"""Values of `render --api`."""
PURPOSES = ("completion", "training", "conversation")
"""Values of `render --for`."""
STYLE_NAMES = ("harmony_0_0_8", "oss_harmony_0_0_11", "guide", "hf_template", "ollama")
"""Values of `render --style`."""
HISTORY_NAMES = ("as_0_0_8", "before_last_final", "before_last_user")
"""Values of `render --history`."""
ROLE_NAMES = ("user", "assistant", "system", "developer", "tool")
"""Values of `parse --role`."""
NO_DATE = "none"
"""The value of `render --date` for no date."""
GOLDEN_KINDS = ("render", "parse", "stream", "typescript")
"""Values of `golden run --kind`."""
GOLDEN_FORMATS = ("text", "json", "junit")
"""Values of `golden run --format`."""
GOLDEN_TIMEOUT = 10.0
"""Seconds for one answer."""
CHECKPOINT_FORMATS = ("gguf", "safetensors")
"""Values of `teleprompter build --format`."""
TELEPROMPTER_LAG, TELEPROMPTER_TRAILER = 256, 3
"""Tokens that the teleprompter looks back, and tokens that a server appends to the last message."""
_COMMAND = (
    "program that answers each line of JSON on its standard input by one line (golden/README.md); run without a shell"
)


def configure_render(parser: ArgumentParser) -> None:
    """Add the options of `render`."""
    parser.add_argument(
        "file",
        metavar="FILE|-",
        help='a conversation of openai-harmony ({"messages": […]}), or a whole request of an API; -: stdin',
    )
    parser.add_argument(
        "--api",
        choices=CONVERSATION_FORMS,
        default=CONVERSATION_FORMS[0],
        help="form of the input (default: Responses with `input`; Chat Completions with members besides `messages`; else harmony)",
    )
    parser.add_argument(
        "--date",
        type=_date,
        metavar="YYYY-MM-DD",
        help="current date in the system message of an API request; none: no date (default: today; with --explain: of the prompt)",
    )
    parser.add_argument(
        "--for",
        dest="purpose",
        choices=PURPOSES,
        default="completion",
        help="purpose of the rendering, as in openai-harmony (default: completion)",
    )
    parser.add_argument("--tokens", action="store_true", help="print the token ids as a JSON list")
    parser.add_argument(
        "--style", choices=STYLE_NAMES, help="rendering style (default: harmony_0_0_8; with --explain: all)"
    )
    parser.add_argument(
        "--history",
        choices=HISTORY_NAMES,
        help="rule for dropping reasoning of earlier turns (default: as_0_0_8; for an API request: before_last_final, the guide's)",
    )
    parser.add_argument(
        "--explain",
        metavar="PROMPT|-",
        help="print the style of this prompt (JSON list of token ids, or Harmony text), or its first difference",
    )


def _date(text: str) -> str:
    try:
        return text if text == NO_DATE else date.fromisoformat(text).isoformat()
    except ValueError:
        raise ArgumentTypeError(f"expected a date such as 2025-06-28, or {NO_DATE}, got {text!r}") from None


def configure_parse(parser: ArgumentParser) -> None:
    """Add the options of `parse`."""
    parser.add_argument("file", metavar="FILE|-", help="Harmony text, or a JSON list of token ids; -: stdin")
    parser.add_argument(
        "--role",
        choices=ROLE_NAMES,
        help="role of the header that precedes the input (default: assistant for a completion, which has no <|start|>)",
    )
    parser.add_argument(
        "--lenient",
        action="store_true",
        help="recover from errors: print messages, unfinished remainder and errors; exit code 1 if there are errors",
    )


def configure_golden(parser: ArgumentParser) -> None:
    """Add the subcommands."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser(
        "check", help="run each vector on every installed implementation; exit code 1 on a difference"
    )
    check.add_argument(
        "folder", nargs="?", metavar="DIR", help="copy of the golden data (default: the data of this package)"
    )
    write = actions.add_parser(
        "write", help="write results that all implementations agree on; exit code 1 if any differ"
    )
    write.add_argument("folder", metavar="DIR", help="folder of the golden data")
    actions.add_parser("list", help="print the ids of the golden data, one per line")
    copy = actions.add_parser("copy", help="copy the golden data to a folder")
    copy.add_argument("folder", metavar="DIR", help="new or empty folder")
    _configure_golden_run(
        actions.add_parser("run", help="judge a renderer or parser as a process; exit code 1 if it does not conform")
    )
    _configure_golden_compare(
        actions.add_parser("compare", help="compare two builds of one by cause; exit code 1 if head breaks a vector")
    )


def _configure_golden_run(parser: ArgumentParser) -> None:
    """Add the options of `run`."""
    parser.add_argument("--command", dest="implementation", required=True, metavar="'CMD …'", help=_COMMAND)
    _add_golden_options(parser, GOLDEN_FORMATS)
    parser.add_argument("--junit", metavar="FILE", type=Path, help="also write JUnit XML to this file")


def _configure_golden_compare(parser: ArgumentParser) -> None:
    """Add the options of `compare`."""
    parser.add_argument("--base", required=True, metavar="'CMD …'", help=_COMMAND)
    parser.add_argument("--head", required=True, metavar="'CMD …'", help="the same, after the change")
    _add_golden_options(parser, ("text", "json"))


def _add_golden_options(parser: ArgumentParser, formats: Sequence[str]) -> None:
    parser.add_argument(
        "--kind",
        action="append",
        choices=GOLDEN_KINDS,
        dest="kinds",
        help=f"vectors to send; may be repeated (default: {', '.join(GOLDEN_KINDS)})",
    )
    parser.add_argument(
        "--select", action="append", metavar="PATTERN", help="only the vectors with such an id; may be repeated"
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=GOLDEN_TIMEOUT,
        metavar="SECONDS",
        help=f"time for one answer; the first one has at least a minute (default: {GOLDEN_TIMEOUT:g})",
    )
    parser.add_argument("--format", choices=formats, default="text", help="output format (default: text)")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="copy of the golden data (default: that of this package)"
    )


def _seconds(word: str) -> float:
    try:
        seconds = float(word)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 24 * 3600:
        raise ArgumentTypeError(f"expected seconds above 0, got {word!r}")
    return seconds


def configure_teleprompter(parser: ArgumentParser) -> None:
    """Add the subcommands `build` and `script`."""
    ways = parser.add_subparsers(dest="way", required=True, metavar="build|script")
    build = ways.add_parser("build", help="build the checkpoint")
    build.add_argument("folder", metavar="DIR", type=Path, help="output folder")
    build.add_argument(
        "--format",
        choices=CHECKPOINT_FORMATS,
        default=CHECKPOINT_FORMATS[0],
        help="gguf: llama.cpp; safetensors: transformers, vLLM",
    )
    build.add_argument("--chat-template", metavar="FILE", type=Path, help="chat template to embed (required for gguf)")
    script = ways.add_parser("script", help="print the text to append to the last message so that the model emits TEXT")
    script.add_argument("text", metavar="TEXT", help="completion; Harmony markers are read as special tokens")
    script.add_argument(
        "--trailer",
        type=int,
        choices=range(1, TELEPROMPTER_LAG),
        metavar="N",
        default=TELEPROMPTER_TRAILER,
        help=f"number of tokens that the server appends to the message (default: {TELEPROMPTER_TRAILER})",
    )
