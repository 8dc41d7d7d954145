"""What lenient parsing makes of each malformed completion that is known: rows written by hand, from the rules."""

import pytest

from harmony_ref import (
    Author,
    Message,
    ParseError,
    Role,
    StreamState,
    UnexpectedEndError,
    encode,
    encode_with_special_tokens,
    parse,
    tokens,
)
from harmony_ref.lenient.errors import (
    RULES,
    HeaderWordsError,
    JunkError,
    MissingMarkerError,
    RecoveredError,
    RecoveryRule,
)
from harmony_ref.lenient.parse import parse_leniently
from harmony_ref.lenient.result import SegmentKind
from harmony_ref.lenient.token_text import text_of_tokens

A = Role.ASSISTANT
JSON = "<|constrain|>json"
HI = ("hi", {"channel": "final"})
CALL = ("{}", {"channel": "commentary", "recipient": "functions.f"})
JSON_CALL = ("{}", {"channel": "commentary", "recipient": "functions.f", "content_type": JSON})
TOOL = {"author": Author(role=Role.TOOL, name="functions.f")}
THOUGHT = ("x", {"channel": "analysis"})


def said(content, fields=None):
    return Message(**{"author": Role.ASSISTANT, **(fields or {}), "content": content})


def messages(*rows):
    return [said(*row) if isinstance(row, tuple) else said(row) for row in rows]


def found(ids, error):
    """The rule and the text that broke it."""
    return error.rule, text_of_tokens(ids[slice(*error.span)])


# Each row: sentence, text, role, finished messages, (rule, text of its span) of each error, text of the remainder.
MATRIX = [
    (
        "reasoning and an answer",
        "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>hi<|return|>",
        [THOUGHT, HI],
        [],
    ),
    (
        "a call with a blank before constrain",
        "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>",
        [JSON_CALL],
        [],
    ),
    (
        "a call without a blank before constrain",
        "<|channel|>commentary to=functions.f<|constrain|>json<|message|>{}<|call|>",
        [JSON_CALL],
        [],
    ),
    (
        "a call with a plain json",
        "<|channel|>commentary to=functions.f json<|message|>{}<|call|>",
        [("{}", {**CALL[1], "content_type": "json"})],
        [],
    ),
    (
        "a call with code",
        "<|channel|>commentary to=functions.f code<|message|>{}<|call|>",
        [("{}", {**CALL[1], "content_type": "code"})],
        [],
    ),
    ("a call without a content type", "<|channel|>commentary to=functions.f<|message|>{}<|call|>", [CALL], []),
    (
        "a recipient in the role section",
        " to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
        [("{}", {**CALL[1], "content_type": "json"})],
        [],
    ),
    (
        "a call in the analysis channel",
        "<|channel|>analysis to=functions.f code<|message|>{}<|call|>",
        [("{}", {"channel": "analysis", "recipient": "functions.f", "content_type": "code"})],
        [],
    ),
    (
        "a doubled channel",
        "<|channel|>commentary to=functions.f<|channel|>commentary<|message|>{}<|call|>",
        [CALL],
        [(RecoveryRule.DOUBLED_CHANNEL, "<|channel|>commentary")],
    ),
    (
        "a recipient in both sections",
        " to=functions.f<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>",
        [JSON_CALL],
        [(RecoveryRule.DOUBLED_RECIPIENT, " to=functions.f")],
    ),
    (
        "a blank in the name of a tool",
        "<|channel|>commentary to=functions.Web Search <|constrain|>json<|message|>{}<|call|>",
        [("{}", {**JSON_CALL[1], "recipient": "functions.Web"})],
        [(RecoveryRule.EXTRA_WORDS, " Search")],
    ),
    ("no markup", "just text", [], [(RecoveryRule.CUT_HEADER, "just text")], "just text"),
    (
        "a channel that is none of the three",
        "<|channel|>analysis\u2013\u2013commentary<|message|>x<|end|>",
        [("x", {"channel": "analysis\u2013\u2013commentary"})],
        [],
    ),
    (
        "a doubled role",
        "<|channel|>analysis<|message|>x<|end|><|start|>assistantassistant<|channel|>final<|message|>hi<|return|>",
        [THOUGHT, HI],
        [(RecoveryRule.ROLE_SPELLING, "assistantassistant")],
    ),
    (
        "a channel in the place of the role",
        "<|channel|>analysis<|message|>x<|end|><|start|>final<|message|>hi<|return|>",
        [THOUGHT, HI],
        [(RecoveryRule.MISSING_ROLE, ""), (RecoveryRule.UNMARKED_CHANNEL, "final")],
    ),
    (
        "a missing end",
        "<|channel|>analysis<|message|>x<|start|>assistant<|channel|>final<|message|>hi<|return|>",
        [THOUGHT, HI],
        [(RecoveryRule.MISSING_END, "")],
    ),
    (
        "text after an end",
        "<|channel|>analysis<|message|>x<|end|>hello<|return|>",
        [THOUGHT],
        [(RecoveryRule.JUNK, "hello<|return|>")],
    ),
    (
        "a message after a return",
        "<|channel|>final<|message|>hi<|return|><|start|>assistant<|channel|>final<|message|>more<|return|>",
        [HI, ("more", {"channel": "final"})],
        [],
    ),
    (
        "the assistant as recipient",
        "<|channel|>commentary to=assistant<|message|>x<|end|>",
        [("x", {"channel": "commentary", "recipient": "assistant"})],
        [],
    ),
    (
        "a header that is cut off",
        "<|channel|>commentary to=functions.f",
        [],
        [(RecoveryRule.CUT_HEADER, "<|channel|>commentary to=functions.f")],
        "",
    ),
    (
        "arguments that are cut off",
        '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":',
        [],
        [],
        '{"a":',
    ),
    (
        "a call that ends in return",
        '<|channel|>commentary to=functions.f json<|message|>{"a":1}<|return|>',
        [('{"a":1}', {**CALL[1], "content_type": "json"})],
        [],
    ),
    ("a stripped stop token", '<|channel|>commentary to=functions.f json<|message|>{"a":1}', [], [], '{"a":1}'),
    (
        "a function without its namespace",
        "<|channel|>commentary to=f <|constrain|>json<|message|>{}<|call|>",
        [("{}", {**JSON_CALL[1], "recipient": "f"})],
        [],
    ),
    (
        "a function with a dot",
        "<|channel|>commentary to=functions.mcp.search<|message|>{}<|call|>",
        [("{}", {"channel": "commentary", "recipient": "functions.mcp.search"})],
        [],
    ),
    (
        "arguments that are no JSON",
        '<|channel|>commentary to=functions.f<|message|>{"a":<|call|>',
        [('{"a":', CALL[1])],
        [],
    ),
    (
        "a function that nobody declared",
        "<|channel|>commentary to=functions.zz<|message|>{}<|call|>",
        [("{}", {"channel": "commentary", "recipient": "functions.zz"})],
        [],
    ),
]
FRAMING = [
    (
        "a doubled stop token",
        "<|channel|>final<|message|>hi<|end|><|return|>",
        [HI],
        [(RecoveryRule.JUNK, "<|return|>")],
    ),
    (
        "a line between two messages",
        "<|channel|>final<|message|>hi<|end|>\n<|start|>assistant<|channel|>final<|message|>hi<|end|>",
        [HI, HI],
        [(RecoveryRule.JUNK, "\n")],
    ),
    (
        "an end of text between messages",
        "<|message|>a<|end|><|endoftext|>",
        ["a"],
        [(RecoveryRule.JUNK, "<|endoftext|>")],
    ),
    (
        "a header without message marker",
        "<|channel|>final  hi  there\n<|end|>",
        [("  hi  there\n", {"channel": "final"})],
        [(RecoveryRule.MISSING_MESSAGE, "  hi  there\n")],
    ),
    (
        "a second header without message marker",
        (
            "<|message|>a<|end|><|start|>assistant<|channel|>final hi<|end|>"
            "<|start|>assistant<|channel|>final<|message|>hi<|end|>"
        ),
        ["a", (" hi", {"channel": "final"}), HI],
        [(RecoveryRule.MISSING_MESSAGE, " hi")],
    ),
    (
        "a call without message marker",
        '<|channel|>commentary to=functions.f {"a": 1}<|call|>',
        [(' {"a": 1}', CALL[1])],
        [(RecoveryRule.MISSING_MESSAGE, ' {"a": 1}')],
    ),
    (
        "a constrained call without message marker",
        '<|channel|>commentary to=functions.f <|constrain|>json {"a": 1}<|call|>',
        [(' {"a": 1}', JSON_CALL[1])],
        [(RecoveryRule.MISSING_MESSAGE, ' {"a": 1}')],
    ),
    (
        "a plain json call without message marker",
        'assistant to=functions.f<|channel|>commentary json {"a": 1}<|call|>',
        [(' {"a": 1}', {**CALL[1], "content_type": "json"})],
        [(RecoveryRule.MISSING_MESSAGE, ' {"a": 1}')],
    ),
    (
        "arguments glued to the recipient",
        'to=functions.f{"a": 1}<|call|>',
        [('{"a": 1}', {"recipient": "functions.f"})],
        [(RecoveryRule.MISSING_MESSAGE, '{"a": 1}')],
    ),
    (
        "only text and a stop token",
        "I  have\n\ntwo<|end|>",
        ["I  have\n\ntwo"],
        [(RecoveryRule.MISSING_MESSAGE, "I  have\n\ntwo")],
    ),
    (
        "the role and text",
        "assistant hello<|end|>",
        [" hello"],
        [(RecoveryRule.MISSING_MESSAGE, " hello")],
    ),
    (
        "text before a channel without message marker",
        "x <|channel|>final y<|end|>",
        [(" y", {"channel": "final"})],
        [(RecoveryRule.EXTRA_WORDS, "x"), (RecoveryRule.MISSING_MESSAGE, " y")],
    ),
    (
        "an answer of which only the message marker was left out",
        "<|channel|>finalHello! 🙂<|return|>",
        [("Hello! 🙂", {"channel": "final"})],
        [(RecoveryRule.MISSING_MESSAGE, "Hello! 🙂")],
    ),
    (
        "reasoning of which only the message marker was left out",
        "<|channel|>analysisWe need to\nthink.<|end|><|start|>assistant<|channel|>final<|message|>hi<|return|>",
        [("We need to\nthink.", {"channel": "analysis"}), HI],
        [(RecoveryRule.MISSING_MESSAGE, "We need to\nthink.")],
    ),
    (
        "a Korean answer of which only the message marker was left out",
        "<|channel|>final안녕하세요<|return|>",
        [("안녕하세요", {"channel": "final"})],
        [(RecoveryRule.MISSING_MESSAGE, "안녕하세요")],
    ),
    (
        "a channel that only begins like one of the three",
        "<|channel|>finally then<|return|>",
        [(" then", {"channel": "finally"})],
        [(RecoveryRule.MISSING_MESSAGE, " then")],
    ),
    (
        "arguments glued to a constrained content type",
        '<|channel|>commentary to=functions.f <|constrain|>json{"a": 1}<|call|>',
        [('{"a": 1}', JSON_CALL[1])],
        [(RecoveryRule.MISSING_MESSAGE, '{"a": 1}')],
    ),
    (
        "arguments glued to a plain content type",
        '<|channel|>commentary to=functions.f json{"a": 1}<|call|>',
        [('{"a": 1}', {**CALL[1], "content_type": "json"})],
        [(RecoveryRule.MISSING_MESSAGE, '{"a": 1}')],
    ),
    (
        "arguments glued to the channel",
        '<|channel|>commentary{"a": 1}<|call|>',
        [('{"a": 1}', {"channel": "commentary"})],
        [(RecoveryRule.MISSING_MESSAGE, '{"a": 1}')],
    ),
    (
        "arguments glued to an empty constrain",
        '<|channel|>commentary to=functions.f <|constrain|>{"a": 1}<|call|>',
        [('{"a": 1}', {**CALL[1], "content_type": "<|constrain|>"})],
        [(RecoveryRule.MISSING_MESSAGE, '{"a": 1}')],
    ),
    (
        "code that begins like a content type",
        "<|channel|>analysis to=python jsonify(x)<|call|>",
        [(" jsonify(x)", {"channel": "analysis", "recipient": "python"})],
        [(RecoveryRule.MISSING_MESSAGE, " jsonify(x)")],
    ),
    (
        "text glued to the assistant",
        "<|message|>a<|end|><|start|>assistantHello there<|end|>",
        ["a", "Hello there"],
        [(RecoveryRule.MISSING_MESSAGE, "Hello there")],
    ),
    (
        "text glued to the assistant and the channel",
        "<|message|>a<|end|><|start|>assistantfinalHello there<|end|>",
        ["a", ("Hello there", {"channel": "final"})],
        [(RecoveryRule.ROLE_SPELLING, "assistantfinal"), (RecoveryRule.MISSING_MESSAGE, "Hello there")],
    ),
    (
        "text that begins like the assistant",
        "<|message|>a<|end|><|start|>assistant-led<|end|>",
        ["a", "assistant-led"],
        [(RecoveryRule.MISSING_ROLE, ""), (RecoveryRule.MISSING_MESSAGE, "assistant-led")],
    ),
    (
        "text that the end cuts and only the message marker was left out",
        "<|channel|>finalHello",
        [],
        [(RecoveryRule.CUT_HEADER, "<|channel|>finalHello")],
        "Hello",
    ),
    (
        "a header without message marker that a start ends",
        "<|channel|>analysis hm<|start|>assistant<|channel|>final<|message|>hi<|end|>",
        [(" hm", {"channel": "analysis"}), HI],
        [(RecoveryRule.MISSING_MESSAGE, " hm")],
    ),
    (
        "an empty message without its marker",
        "<|channel|>final<|end|>",
        [("", {"channel": "final"})],
        [(RecoveryRule.MISSING_MESSAGE, "")],
    ),
    ("a stop token alone", "<|end|>", [], [(RecoveryRule.ABANDONED_HEADER, "<|end|>")]),
    (
        "a channel marker and a stop token",
        "<|channel|> <|end|>",
        [],
        [(RecoveryRule.ABANDONED_HEADER, "<|channel|> <|end|>")],
    ),
    (
        "a missing start and role",
        "<|channel|>analysis<|message|>x<|end|><|channel|>final<|message|>hi<|end|>",
        [THOUGHT, HI],
        [(RecoveryRule.MISSING_START, "")],
    ),
    (
        "a missing start before the role",
        "<|channel|>analysis<|message|>x<|end|>\nassistant<|channel|>final<|message|>hi<|end|>",
        [THOUGHT, HI],
        [(RecoveryRule.JUNK, "\n"), (RecoveryRule.MISSING_START, "")],
    ),
    (
        "a missing start before a recipient",
        "<|channel|>analysis<|message|>x<|end|> to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|>",
        [THOUGHT, JSON_CALL],
        [(RecoveryRule.MISSING_START, "")],
    ),
    (
        "a missing start and words before a recipient",
        "<|message|>x<|end|>so the answer: to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|>",
        ["x", JSON_CALL],
        [(RecoveryRule.JUNK, "so the answer:"), (RecoveryRule.MISSING_START, "")],
    ),
    (
        "a missing start before the result of a tool",
        "<|message|>x<|end|>so functions.f to=assistant<|channel|>commentary<|message|>1<|end|>",
        ["x", ("1", {**TOOL, "recipient": "assistant", "channel": "commentary"})],
        [(RecoveryRule.JUNK, "so"), (RecoveryRule.MISSING_START, "")],
    ),
    (
        "an into= that is no recipient",
        "<|message|>x<|end|>into=y<|channel|>final<|message|>hi<|end|>",
        ["x", HI],
        [(RecoveryRule.JUNK, "into=y"), (RecoveryRule.MISSING_START, "")],
    ),
    (
        "a channel directly after an end",
        "<|channel|>analysis<|message|>x<|end|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>",
        [THOUGHT, JSON_CALL],
        [(RecoveryRule.MISSING_START, ""), (RecoveryRule.UNMARKED_CHANNEL, "commentary")],
    ),
    (
        "a doubled start",
        "<|message|>a<|end|><|start|><|start|>assistant<|channel|>final<|message|>hi<|end|>",
        ["a", HI],
        [(RecoveryRule.DOUBLED_START, "<|start|>")],
    ),
    (
        "the start of the prompt repeated twice",
        "<|start|><|start|>assistant<|channel|>final<|message|>hi<|end|>",
        [HI],
        [(RecoveryRule.DOUBLED_START, "<|start|>")],
    ),
    (
        "the start of the prompt repeated",
        "<|start|>assistant<|channel|>final<|message|>hi<|end|>",
        [HI],
        [(RecoveryRule.DOUBLED_START, "<|start|>")],
    ),
    (
        "a doubled header",
        "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|start|>assistant<|channel|>final<|message|>hi<|end|>",
        [THOUGHT, HI],
        [(RecoveryRule.ABANDONED_HEADER, "<|start|>assistant")],
    ),
    (
        "a channel in content with a header of its own",
        "<|channel|>analysis<|message|>x<|channel|>final<|message|>hi<|end|>",
        [THOUGHT, HI],
        [(RecoveryRule.MISSING_END, "")],
    ),
    (
        "the role and a channel in content",
        "<|channel|>analysis<|message|>xassistant<|channel|>commentary to=functions.f<|message|>{}<|call|>",
        [THOUGHT, CALL],
        [(RecoveryRule.MISSING_END, "")],
    ),
    (
        "a long header in content",
        "<|message|>x<|channel|>commentary to=functions.one.of.many.functions.that.have.long.names<|message|>{}<|call|>",
        ["x", ("{}", {**CALL[1], "recipient": "functions.one.of.many.functions.that.have.long.names"})],
        [(RecoveryRule.MISSING_END, "")],
    ),
    (
        "a header in content that is too long to be one",
        f"<|message|>x<|channel|>commentary to={'f.' * 70}<|message|>y<|end|>",
        [f"x<|channel|>commentary to={'f.' * 70}<|message|>y"],
        [(RecoveryRule.STRAY_IN_CONTENT, "<|channel|>"), (RecoveryRule.STRAY_IN_CONTENT, "<|message|>")],
    ),
    (
        "stray specials in content",
        "<|message|>a<|channel|>b<|constrain|>c<|message|>d<|endoftext|><|reserved_200013|>e<|end|>",
        ["a<|channel|>b<|constrain|>c<|message|>d<|endoftext|><|reserved_200013|>e"],
        [
            (RecoveryRule.STRAY_IN_CONTENT, "<|channel|>"),
            (RecoveryRule.STRAY_IN_CONTENT, "<|constrain|>"),
            (RecoveryRule.STRAY_IN_CONTENT, "<|message|>"),
            (RecoveryRule.STRAY_IN_CONTENT, "<|endoftext|><|reserved_200013|>"),
        ],
    ),
    (
        "a channel in content with words that are no header",
        "<|message|>see <|channel|>final to be or not<|message|>d<|end|>",
        ["see <|channel|>final to be or not<|message|>d"],
        [(RecoveryRule.STRAY_IN_CONTENT, "<|channel|>"), (RecoveryRule.STRAY_IN_CONTENT, "<|message|>")],
    ),
    (
        "a constrain between messages",
        "<|message|>a<|end|>hello<|constrain|>json<|return|>",
        ["a"],
        [(RecoveryRule.JUNK, "hello<|constrain|>json<|return|>")],
    ),
    (
        "words before a channel without message marker, after a start",
        "<|message|>a<|end|><|start|>hello there <|channel|>final y<|end|>",
        ["a", (" y", {"channel": "final"})],
        [
            (RecoveryRule.MISSING_ROLE, ""),
            (RecoveryRule.EXTRA_WORDS, "hello there"),
            (RecoveryRule.MISSING_MESSAGE, " y"),
        ],
    ),
    (
        "a constrain before text",
        "to=f <|constrain|> hello<|end|>",
        [(" hello", {"recipient": "f", "content_type": "<|constrain|>"})],
        [(RecoveryRule.MISSING_MESSAGE, " hello")],
    ),
    (
        "a second recipient without message marker",
        "to=a to=b hi<|end|>",
        [(" to=b hi", {"recipient": "a"})],
        [(RecoveryRule.MISSING_MESSAGE, " to=b hi")],
    ),
    (
        "a role that belonged to an earlier header",
        "a b c<|message|>x<|end|><|start|>user<|message|>ok<|end|>",
        ["x", ("ok", {"author": Role.USER})],
        [(RecoveryRule.EXTRA_WORDS, "a b c")],
    ),
    ("half a recipient", "<|channel|>commentary to", [], [(RecoveryRule.CUT_HEADER, "<|channel|>commentary to")], ""),
    ("a header that stops after its marker", "<|channel|>", [], [(RecoveryRule.CUT_HEADER, "<|channel|>")], ""),
    ("an open turn", "", [], [], ""),
    ("an open turn whose role is said again", "assistant", [], [], ""),
]
ROWS = [
    *((name, text, A, *rest) for name, text, *rest in [*MATRIX, *FRAMING]),
    (
        "only text, and no role was given",
        "just text",
        None,
        [],
        [(RecoveryRule.MISSING_START, ""), (RecoveryRule.CUT_HEADER, "just text")],
        "just text",
    ),
    (
        "text and a stop token, and no role was given",
        "hi<|end|>",
        None,
        ["hi"],
        [(RecoveryRule.MISSING_START, ""), (RecoveryRule.MISSING_MESSAGE, "hi")],
    ),
    (
        "text that begins with a role, and no role was given",
        "user experience is key<|end|>",
        None,
        ["user experience is key"],
        [(RecoveryRule.MISSING_START, ""), (RecoveryRule.MISSING_MESSAGE, "user experience is key")],
    ),
    (
        "text that is the name of a tool, and no role was given",
        "browser.search<|end|>",
        None,
        ["browser.search"],
        [(RecoveryRule.MISSING_START, ""), (RecoveryRule.MISSING_MESSAGE, "browser.search")],
    ),
    (
        "a call without a start, and no role was given",
        "to=functions.f {}<|call|>",
        None,
        [(" {}", {"recipient": "functions.f"})],
        [(RecoveryRule.MISSING_START, ""), (RecoveryRule.MISSING_MESSAGE, " {}")],
    ),
    (
        "a tool's header that is cut inside to=",
        "<|start|>functions.f to",
        None,
        [],
        [(RecoveryRule.CUT_HEADER, "<|start|>functions.f to")],
        "",
    ),
    (
        "a completion whose role was not given",
        "<|channel|>final<|message|>hi<|end|>",
        None,
        [HI],
        [(RecoveryRule.MISSING_START, "")],
    ),
    ("content without any header", "<|message|>hi<|end|>", None, ["hi"], [(RecoveryRule.MISSING_START, "")]),
    (
        "white space before the first message",
        "\n<|start|>user<|message|>a<|end|>",
        None,
        [("a", {"author": Role.USER})],
        [(RecoveryRule.JUNK, "\n")],
    ),
    ("a prompt", "<|start|>user<|message|>a<|end|><|start|>assistant", None, [("a", {"author": Role.USER})], [], ""),
    ("a start and nothing more", "<|start|>", None, [], [(RecoveryRule.CUT_HEADER, "<|start|>")], ""),
    (
        "a tool's header without message marker",
        '<|start|>functions.f to=assistant {"t":1}<|end|>',
        None,
        [(' {"t":1}', {**TOOL, "recipient": "assistant"})],
        [(RecoveryRule.MISSING_MESSAGE, ' {"t":1}')],
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_completion_is_read_for_what_it_means(row):
    _, text, role, expected, errors, *remainder = row
    ids = encode_with_special_tokens(text)
    read = parse_leniently(ids, role)
    assert messages(*expected) == list(read.messages)
    assert [None if read.remainder is None else read.remainder.text] == (remainder or [None])
    assert sorted(errors) == sorted(found(ids, error) for error in read.errors)


def test_there_are_enough_rows_and_each_rule_of_framing_and_content_has_one():
    assert len(ROWS) == len({row[0] for row in ROWS}) >= 60
    rules = {rule for row in [*ROWS, *BROKEN] for rule, *_ in row[4 if row in ROWS else 3]}
    framing = {rule for rule in RecoveryRule if RULES[rule].kind is not HeaderWordsError}
    assert framing - rules == set()


# Tokens that are no text: the messages' texts, and the errors with their spans.
BROKEN = [
    (
        "an unknown id in content",
        [200008, 64, 201089, 65, 66, 200007],
        ["a\ufffdbc"],
        [(RecoveryRule.UNKNOWN_ID, 2, 3)],
    ),
    (
        "unknown ids of any size",
        [200008, 64, -1, 2**70, 65, 200007],
        ["a\ufffd\ufffdb"],
        [(RecoveryRule.UNKNOWN_ID, 2, 4)],
    ),
    ("broken characters", [200008, 64, 78747, 65, 200007], ["a\ufffdppb"], [(RecoveryRule.INVALID_UTF8, 2, 3)]),
    (
        "broken characters in two places, and one of two tokens",
        [200008, 64, 186978, 65, 66, 4103, 104, 67, 200007],
        ["a" + tokens.decode_bytes([186978, 65, 66, 4103, 104, 67]).decode("utf-8", "replace")],
        [(RecoveryRule.INVALID_UTF8, 2, 3), (RecoveryRule.INVALID_UTF8, 5, 7)],
    ),
    (
        "two broken characters",
        [200008, 78747, 78747, 65, 200007],
        ["\ufffdpp\ufffdppb"],
        [(RecoveryRule.INVALID_UTF8, 1, 3)],
    ),
    (
        "a token that ends a second recipient and begins extra words",
        [*encode("assistant to=a json to=b"), 5754, 945, 200008, 64, 200007],
        ["a"],
        [
            (RecoveryRule.CONTENT_TYPE_NOT_LAST, 3, 4),
            (RecoveryRule.DOUBLED_RECIPIENT, 4, 7),
            (RecoveryRule.EXTRA_WORDS, 6, 8),
        ],
    ),
    ("a character that an end cuts", [200008, 64, 4103, 200007], ["a\ufffd"], [(RecoveryRule.INVALID_UTF8, 2, 3)]),
    (
        "an unknown id in a character",
        [200008, 4103, 201089, 64, 200007],
        ["\ufffd\ufffda"],
        [(RecoveryRule.INVALID_UTF8, 1, 2), (RecoveryRule.UNKNOWN_ID, 2, 3)],
    ),
    (
        "an unknown id in a header",
        [201089, 200005, 17196, 200008, 64, 200007],
        ["a"],
        [(RecoveryRule.BARE_RECIPIENT, 0, 1), (RecoveryRule.HEADER_BYTES, 0, 3)],
    ),
    (
        "a broken character in a channel",
        [200005, 17196, 4103, 200008, 64, 200007],
        ["a"],
        [(RecoveryRule.HEADER_BYTES, 0, 3)],
    ),
    (
        "a stray marker after an unknown id",
        [200008, 64, 201089, 200003, 200007],
        ["a\ufffd<|constrain|>"],
        [(RecoveryRule.UNKNOWN_ID, 2, 3), (RecoveryRule.STRAY_IN_CONTENT, 3, 4)],
    ),
    (
        "an unknown id in text that the end cuts",
        [200005, 17196, 220, 201089, 64],
        [],
        [(RecoveryRule.UNKNOWN_ID, 3, 4), (RecoveryRule.CUT_HEADER, 0, 5)],
    ),
    ("unknown ids between messages", [200008, 64, 200007, 201089, -5], ["a"], [(RecoveryRule.JUNK, 3, 5)]),
    (
        "unknown ids and no message marker",
        [64, 201089, 65, 200007],
        ["a\ufffdb"],
        [(RecoveryRule.MISSING_MESSAGE, 0, 3), (RecoveryRule.UNKNOWN_ID, 1, 2)],
    ),
]


@pytest.mark.parametrize("row", BROKEN, ids=[row[0] for row in BROKEN])
def test_tokens_that_are_no_text_cost_nothing_but_themselves(row):
    _, ids, texts, errors = row
    read = parse_leniently(ids, A)
    assert texts == [message.content[0].text for message in read.messages]
    assert sorted(errors) == sorted((error.rule, *error.span) for error in read.errors)
    assert sorted(error.position for error in read.errors) == [error.position for error in read.errors]
    assert ids == read.tokens


def test_an_error_quotes_a_little_of_what_is_wrong():
    (error,) = parse_leniently([200008, 200007, *encode("no " * 1000)], A).errors
    assert str(error) == f"junk between messages: '{('no ' * 14)[:40]}…'; expected <|start|>"
    (error,) = parse_leniently([200008, 200007, *encode("no")], A).errors
    assert str(error) == "junk between messages: 'no'; expected <|start|>"


def test_broken_bytes_in_a_field_of_the_header_are_replaced():
    channel = parse_leniently([200005, 17196, 4103, 200008, 200007], A).messages[0].channel
    assert channel == "final\ufffd"


def test_a_character_that_the_end_of_the_input_cuts_is_no_error():
    read = parse_leniently([200008, 64, 4103], A)
    assert (list(read.errors), read.remainder.text) == ([], "a\ufffd")


def test_a_broken_character_before_the_one_that_is_cut_is_an_error():
    for ids, span in (([200008, 78747, 65, 4103], (1, 2)), ([200008, 64, 160, 4103, 104], (2, 3))):
        read = parse_leniently(ids, A)
        assert [(error.rule, error.span) for error in read.errors] == [(RecoveryRule.INVALID_UTF8, span)]


@pytest.mark.parametrize(
    "text", ["<|start|>", "a<|end|><|start|>assistant<|channel|>final<|message|>b", "<|channel|>x"]
)
def test_markers_in_ordinary_tokens_are_content_and_stay(text):
    for head in ([200008], [200005, 17196, 200008]):
        read = parse_leniently([*head, *encode(text), 200007], A)
        assert [text] == [message.content[0].text for message in read.messages]
        assert not read.errors
    without_marker = parse_leniently([*encode(f"see {text}"), 200007], A)
    assert [f"see {text}"] == [message.content[0].text for message in without_marker.messages]
    after_a_channel = parse_leniently([200005, 17196, *encode(f" {text}"), 200007], A)
    assert [f" {text}"] == [message.content[0].text for message in after_a_channel.messages]


POSITIONS = [
    ("<|message|>a<|end|><|return|>", JunkError, 3, (3, 4), StreamState.EXPECT_START, "<|start|>"),
    ("<|channel|>final hi<|end|>", MissingMarkerError, 2, (2, 3), StreamState.HEADER, "<|message|>"),
    (
        "<|message|>a<|start|>user<|message|>b<|end|>",
        MissingMarkerError,
        2,
        (2, 2),
        StreamState.CONTENT,
        "<|end|>, <|call|> or <|return|>",
    ),
    ("<|channel|>final", UnexpectedEndError, 2, (0, 2), StreamState.HEADER, "<|message|>"),
]


@pytest.mark.parametrize("row", POSITIONS, ids=[row[0] for row in POSITIONS])
def test_an_error_says_where_in_which_state_and_what_would_have_been_right(row):
    text, kind, position, span, state, expected = row
    (error,) = parse_leniently(encode_with_special_tokens(text), A).errors
    assert isinstance(error, kind)
    assert isinstance(error, ParseError)
    assert (error.position, error.span, error.state, error.expected) == (position, span, state, expected)
    assert str(error).endswith(f"expected {expected}")


def test_every_error_of_every_row_has_the_parts_of_a_parse_error_and_they_come_by_position():
    for _, text, role, *_ in ROWS:
        errors = parse_leniently(encode_with_special_tokens(text), role).errors
        assert sorted(error.position for error in errors) == [error.position for error in errors]
        for error in errors:
            assert isinstance(error, RecoveredError)
            assert error.expected
            assert error.rule.value in str(error)
            assert error.span[0] <= error.span[1]


def test_every_token_is_in_one_segment_with_its_text_and_its_message():
    ids = encode_with_special_tokens(
        "<|start|>user<|message|>a<|end|>\n<|start|>assistant to=f extra words<|message|>b<|call|><|start|>assistant"
    )
    read = parse_leniently(ids)
    assert [(segment.kind, segment.text, segment.message) for segment in read.segments] == [
        (SegmentKind.START, "<|start|>", 0),
        (SegmentKind.HEADER, "user", 0),
        (SegmentKind.MESSAGE, "<|message|>", 0),
        (SegmentKind.CONTENT, "a", 0),
        (SegmentKind.STOP, "<|end|>", 0),
        (SegmentKind.JUNK, "\n", None),
        (SegmentKind.START, "<|start|>", 1),
        (SegmentKind.HEADER, "assistant to=f", 1),
        (SegmentKind.JUNK, " extra words", None),
        (SegmentKind.MESSAGE, "<|message|>", 1),
        (SegmentKind.CONTENT, "b", 1),
        (SegmentKind.STOP, "<|call|>", 1),
        (SegmentKind.START, "<|start|>", 2),
        (SegmentKind.HEADER, "assistant", 2),
    ]
    assert [segment.start for segment in read.segments] == [0, *(segment.stop for segment in read.segments[:-1])]


def test_a_remainder_says_what_is_known_of_it():
    ids = encode_with_special_tokens(
        '<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a"'
    )
    for role, given in ((None, ids), (A, ids[2:])):
        remainder = parse_leniently(given, role).remainder
        assert remainder.state is StreamState.CONTENT
        assert said('{"a"', JSON_CALL[1]) == remainder.message
        assert list(remainder.tokens) == given
    assert parse_leniently([200006]).remainder.header is None
    assert said("hello there") == parse_leniently([200006, *encode("hello there")]).remainder.message
    assert parse_leniently(ids[:4]).remainder.header.channel == "comment"


def test_parse_is_the_other_door_to_it():
    run = encode_with_special_tokens("<|message|>hi<|end|><|end|>")
    read = parse(iter(run), A, lenient=True)
    assert [said("hi")] == list(read.messages)
    assert [error.rule for error in read.errors] == [RecoveryRule.JUNK]


@pytest.mark.parametrize("completion", ["text", [1.0], [None], [[]]], ids=["text", "a float", "None", "a list"])
def test_what_is_no_sequence_of_integers_is_a_value_error(completion):
    with pytest.raises(ValueError, match="expected token ids"):
        parse_leniently(completion)
