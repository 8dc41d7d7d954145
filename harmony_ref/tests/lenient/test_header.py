"""What lenient parsing makes of each header that is known to break a rule: rows written by hand, from the rules."""

import pytest

from harmony_ref import Author, Message, Role, encode_with_special_tokens
from harmony_ref.lenient.errors import RULES, HeaderWordsError, RecoveryRule
from harmony_ref.lenient.parse import parse_leniently
from harmony_ref.lenient.token_text import text_of_tokens

JSON = "<|constrain|>json"
TOOL = Author(role=Role.TOOL, name="functions.f")


def said(**fields):
    return Message(**{"author": Role.ASSISTANT, **fields, "content": "C"})


# Each row: sentence, header between `<|start|>` and `<|message|>`, message, (rule, text of its span) of each error.
HEADERS = [
    (
        "a tool called json",
        "json to=assistant",
        said(author=Author(role=Role.TOOL, name="json"), recipient="assistant"),
        [],
    ),
    (
        "a tool twice",
        "tool tool",
        said(author=Author(role=Role.TOOL, name="tool"), recipient="tool"),
        [(RecoveryRule.BARE_RECIPIENT, " tool")],
    ),
    ("a control character in a recipient", "assistant to=f\x1cjson", said(recipient="f\x1cjson"), []),
    (
        "a constrained answer",
        "assistant<|channel|>final <|constrain|>json",
        said(channel="final", content_type=JSON),
        [(RecoveryRule.LONE_CONTENT_TYPE, JSON)],
    ),
    (
        "a constrained answer, glued",
        "assistant<|channel|>final<|constrain|>json",
        said(channel="final", content_type=JSON),
        [(RecoveryRule.LONE_CONTENT_TYPE, JSON)],
    ),
    (
        "a constrained message",
        "assistant <|constrain|>json",
        said(content_type=JSON),
        [(RecoveryRule.LONE_CONTENT_TYPE, JSON)],
    ),
    (
        "a json answer",
        "assistant<|channel|>final json",
        said(channel="final", content_type="json"),
        [(RecoveryRule.LONE_CONTENT_TYPE, " json")],
    ),
    (
        "code in reasoning",
        "assistant<|channel|>analysis code",
        said(channel="analysis", content_type="code"),
        [(RecoveryRule.LONE_CONTENT_TYPE, " code")],
    ),
    (
        "an empty constrain",
        "assistant<|channel|>final <|constrain|>",
        said(channel="final", content_type="<|constrain|>"),
        [(RecoveryRule.LONE_CONTENT_TYPE, "<|constrain|>")],
    ),
    (
        "a blank after constrain",
        "assistant<|channel|>commentary to=f <|constrain|> json",
        said(channel="commentary", recipient="f", content_type=JSON),
        [(RecoveryRule.SPACED_CONSTRAIN, "<|constrain|> json")],
    ),
    (
        "a content type before the recipient",
        "assistant<|channel|>commentary <|constrain|>json to=f",
        said(channel="commentary", recipient="f", content_type=JSON),
        [(RecoveryRule.CONTENT_TYPE_NOT_LAST, JSON)],
    ),
    (
        "a doubled content type",
        "assistant to=f <|constrain|>json<|constrain|>json",
        said(recipient="f", content_type=JSON),
        [(RecoveryRule.DOUBLED_CONTENT_TYPE, JSON)],
    ),
    (
        "a bare recipient",
        "assistant<|channel|>commentary functions.f",
        said(channel="commentary", recipient="functions.f"),
        [(RecoveryRule.BARE_RECIPIENT, " functions.f")],
    ),
    (
        "a bare recipient and a content type",
        "assistant<|channel|>commentary functions.f json",
        said(channel="commentary", recipient="functions.f", content_type="json"),
        [(RecoveryRule.BARE_RECIPIENT, " functions.f")],
    ),
    ("two recipients", "assistant to=a to=b", said(recipient="a"), [(RecoveryRule.DOUBLED_RECIPIENT, " to=b")]),
    (
        "a recipient in each section",
        "assistant to=a<|channel|>commentary to=b",
        said(recipient="a", channel="commentary"),
        [(RecoveryRule.DOUBLED_RECIPIENT, " to=b")],
    ),
    (
        "a blank after to=",
        "assistant<|channel|>commentary to= functions.f",
        said(channel="commentary", recipient="functions.f"),
        [(RecoveryRule.SPLIT_RECIPIENT, " to= functions.f")],
    ),
    (
        "a blank before the equals sign",
        "assistant<|channel|>commentary to =functions.f",
        said(channel="commentary", recipient="functions.f"),
        [(RecoveryRule.SPLIT_RECIPIENT, " to =functions.f")],
    ),
    (
        "blanks around the equals sign",
        "assistant to = f",
        said(recipient="f"),
        [(RecoveryRule.SPLIT_RECIPIENT, " to = f")],
    ),
    (
        "extra words",
        "assistant to=f extra words json",
        said(recipient="f", content_type="json"),
        [(RecoveryRule.EXTRA_WORDS, " extra words")],
    ),
    (
        "a blank before the channel",
        "assistant<|channel|> analysis",
        said(channel="analysis"),
        [(RecoveryRule.SPACED_CHANNEL, "<|channel|> analysis")],
    ),
    (
        "a line before the channel",
        "assistant<|channel|>\nanalysis",
        said(channel="analysis"),
        [(RecoveryRule.SPACED_CHANNEL, "<|channel|>\nanalysis")],
    ),
    ("an empty channel", "assistant<|channel|>", said(), [(RecoveryRule.NO_CHANNEL, "<|channel|>")]),
    (
        "a recipient instead of a channel",
        "assistant<|channel|> to=f",
        said(recipient="f"),
        [(RecoveryRule.NO_CHANNEL, "<|channel|>")],
    ),
    (
        "two channels",
        "assistant<|channel|>analysis<|channel|>final",
        said(channel="analysis"),
        [(RecoveryRule.DOUBLED_CHANNEL, "<|channel|>final")],
    ),
    (
        "a tool as the first of two channels",
        "assistant<|channel|>bash<|channel|>commentary",
        said(channel="commentary"),
        [(RecoveryRule.DOUBLED_CHANNEL, "<|channel|>bash")],
    ),
    (
        "a channel without its marker",
        "assistant final",
        said(channel="final"),
        [(RecoveryRule.UNMARKED_CHANNEL, " final")],
    ),
    (
        "a channel cut by a bracket",
        "assistant<|channel|>comment<ary",
        said(channel="comment", recipient="<ary"),
        [(RecoveryRule.BARE_RECIPIENT, "<ary")],
    ),
    ("a role in capitals", "Assistant", said(), [(RecoveryRule.ROLE_SPELLING, "Assistant")]),
    (
        "a role in capitals and a recipient",
        "ASSISTANT to=x",
        said(recipient="x"),
        [(RecoveryRule.ROLE_SPELLING, "ASSISTANT")],
    ),
    ("a repeated role", "assistant assistant", said(), [(RecoveryRule.ROLE_SPELLING, "assistant assistant")]),
    (
        "a channel glued to the role",
        "assistantfinal",
        said(channel="final"),
        [(RecoveryRule.ROLE_SPELLING, "assistantfinal")],
    ),
    ("no role", "<|channel|>final", said(channel="final"), [(RecoveryRule.MISSING_ROLE, "")]),
    ("nothing", "", said(), [(RecoveryRule.MISSING_ROLE, "")]),
    (
        "only a recipient",
        "to=functions.f <|constrain|>json",
        said(recipient="functions.f", content_type=JSON),
        [(RecoveryRule.MISSING_ROLE, "")],
    ),
    (
        "a named user",
        "user:bob",
        said(author=Author(role=Role.USER, name="bob")),
        [(RecoveryRule.NAMED_AUTHOR, "user:bob")],
    ),
    (
        "a named assistant and a recipient",
        "assistant:bob to=x",
        said(author=Author(role=Role.ASSISTANT, name="bob"), recipient="x"),
        [(RecoveryRule.NAMED_AUTHOR, "assistant:bob")],
    ),
    (
        "a tool reply without a recipient",
        "functions.f<|channel|>commentary",
        said(author=TOOL, channel="commentary"),
        [(RecoveryRule.TOOL_ALONE, "functions.f")],
    ),
    ("a tool reply to nobody", "functions.f", said(author=TOOL), [(RecoveryRule.TOOL_ALONE, "functions.f")]),
    (
        "a tool reply",
        "functions.f to=assistant<|channel|>commentary",
        said(author=TOOL, recipient="assistant", channel="commentary"),
        [],
    ),
    (
        "an end of text in the header",
        "assistant<|endoftext|><|channel|>final",
        said(channel="final"),
        [(RecoveryRule.STRAY_IN_HEADER, "<|endoftext|>")],
    ),
    (
        "a plain content type after a constrained one",
        "assistant to=f<|channel|>commentary <|constrain|>json json",
        said(recipient="f", channel="commentary", content_type=JSON),
        [(RecoveryRule.CONTENT_TYPE_NOT_LAST, JSON), (RecoveryRule.DOUBLED_CONTENT_TYPE, " json")],
    ),
    (
        "a plain content type before a constrained one, and no recipient",
        "assistant<|channel|>commentary json <|constrain|>json",
        said(channel="commentary", content_type=JSON),
        [(RecoveryRule.DOUBLED_CONTENT_TYPE, " json"), (RecoveryRule.LONE_CONTENT_TYPE, JSON)],
    ),
    (
        "two plain content types",
        "assistant<|channel|>commentary to=f code json",
        said(recipient="f", channel="commentary", content_type="code"),
        [(RecoveryRule.CONTENT_TYPE_NOT_LAST, " code"), (RecoveryRule.DOUBLED_CONTENT_TYPE, " json")],
    ),
    (
        "many blanks after constrain and no recipient",
        "assistant<|channel|>final <|constrain|>             json",
        said(channel="final", content_type=JSON),
        [
            (RecoveryRule.LONE_CONTENT_TYPE, "<|constrain|>             json"),
            (RecoveryRule.SPACED_CONSTRAIN, "<|constrain|>             json"),
        ],
    ),
    (
        "another channel without its marker",
        "assistant<|channel|>analysis final",
        said(channel="analysis"),
        [(RecoveryRule.DOUBLED_CHANNEL, " final")],
    ),
    ("a no-break space at the end", "assistant<|channel|>final\xa0", said(channel="final"), []),
    (
        "a glued channel beside one with its marker",
        "assistantfinal<|channel|>analysis",
        said(channel="analysis"),
        [(RecoveryRule.ROLE_SPELLING, "assistantfinal")],
    ),
    ("a content type after an empty recipient", "assistant to= json", said(recipient="", content_type="json"), []),
    (
        "two bare words and a constrained content type",
        "assistant a b <|constrain|>json",
        said(content_type=JSON),
        [(RecoveryRule.EXTRA_WORDS, " a b"), (RecoveryRule.LONE_CONTENT_TYPE, JSON)],
    ),
    (
        "an empty name",
        "assistant: <|channel|>final",
        said(author=Author(role=Role.ASSISTANT, name=""), channel="final"),
        [(RecoveryRule.NAMED_AUTHOR, "assistant:")],
    ),
    (
        "a reserved token in the header",
        "assistant to=f<|channel|>commentary<|reserved_200013|>",
        said(recipient="f", channel="commentary"),
        [(RecoveryRule.STRAY_IN_HEADER, "<|reserved_200013|>")],
    ),
    (
        "a no-break space for a blank",
        "assistant to=f\xa0json",
        said(recipient="f", content_type="json"),
        [(RecoveryRule.ODD_WHITE_SPACE, "\xa0")],
    ),
]
# Headers after a role that was given, before `<|message|>`.
GIVEN = [
    ("a role that is said again", Role.ASSISTANT, "assistant", said(), []),
    (
        "a role that is said again with its start",
        Role.ASSISTANT,
        "<|start|>assistant<|channel|>final",
        said(channel="final"),
        [(RecoveryRule.DOUBLED_START, "<|start|>")],
    ),
    (
        "a role that is doubled",
        Role.USER,
        "useruser",
        said(author=Role.USER),
        [(RecoveryRule.ROLE_SPELLING, "useruser")],
    ),
    (
        "another role's word",
        Role.ASSISTANT,
        "user<|channel|>final",
        said(channel="final", recipient="user"),
        [(RecoveryRule.BARE_RECIPIENT, "user")],
    ),
    (
        "a tool's header where the assistant was to speak",
        Role.ASSISTANT,
        "functions.f to=assistant<|channel|>commentary",
        said(channel="commentary", recipient="assistant"),
        [(RecoveryRule.EXTRA_WORDS, "functions.f")],
    ),
    ("a tool of which only the role is known", Role.TOOL, "", said(author=Role.TOOL), []),
    (
        "a constrained answer",
        Role.ASSISTANT,
        "<|channel|>final <|constrain|>json",
        said(channel="final", content_type=JSON),
        [(RecoveryRule.LONE_CONTENT_TYPE, JSON)],
    ),
    ("a lone json", Role.ASSISTANT, " json", said(content_type="json"), [(RecoveryRule.LONE_CONTENT_TYPE, " json")]),
    (
        "two bare words",
        Role.ASSISTANT,
        "foo bar",
        said(recipient="foo", content_type="bar"),
        [(RecoveryRule.BARE_RECIPIENT, "foo")],
    ),
]
ROWS = [*((name, None, f"<|start|>{header}", *rest) for name, header, *rest in HEADERS), *GIVEN]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_header_is_read_for_what_it_means(row):
    _, role, header, message, errors = row
    ids = encode_with_special_tokens(f"{header}<|message|>C<|end|>")
    read = parse_leniently(ids, role)
    assert [message] == list(read.messages)
    assert sorted(errors) == sorted((error.rule, text_of_tokens(ids[slice(*error.span)])) for error in read.errors)
    assert ids == read.tokens


def test_each_rule_of_headers_has_a_row():
    rules = {rule for row in ROWS for rule, _ in row[4]}
    header = {rule for rule in RecoveryRule if RULES[rule].kind is HeaderWordsError}
    # The header that is not text cannot be written as text; its rows stand with the other broken tokens.
    assert header - rules == {RecoveryRule.HEADER_BYTES}
