"""The plan `needles` finds every failure that all checks find, however a text is escaped, nested or cut."""

import itertools
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from harmony_conformance.audit.batches import Batch, ReadOptions, batches, scan_batch
from harmony_conformance.audit.plans import blocks, literal_search
from harmony_conformance.audit.plans.needles import NEEDLE_CHECKS, NEEDLES, TOGETHER
from harmony_conformance.audit.plans.plan import LARGE_LOG, AuditPlan, PlanName, choose_plan
from harmony_conformance.audit.plans.prefilter import LIBRARIES, find_lines
from harmony_conformance.audit.redaction import Excerpts
from harmony_conformance.audit.tallies import Tally
from harmony_conformance.errors import UsageError
from harmony_conformance.evidence.file_lines import LINE_LIMIT, Line, UnreadableLine

ROOT = Path(__file__).parents[3]
BENCHMARKS = ROOT / "benchmarks"
LIBRARY_NAMES = sorted(LIBRARIES)
STRUCTURE = ReadOptions(excerpts=Excerpts.FULL)
LEAKS = (
    "<|channel|>analysis<|message|>We need to answer.<|end|><|start|>assistant<|channel|>final<|message|>Hello!",
    "Hello!<|return|>",
    "<|reserved_200013|>",
    "analysisWe need to say hello.assistantfinalHello!",
    "Done.assistantanalysisThe user",
    "Hm.assistantcommentary to=functions.f json{}",
    'assistantjson{"a":1}',
    'So.assistantcode{"a":1}',
    'commentary to=functions.get_weather json{"city":"Oslo"}',
    'analysis to=functions.f code{"a":1}',
    'assistant commentary to=functions.f {"a":1}',
    'assistant`x`commentary to=functions.f {"a":1}',
    'assistant\ncommentary to=functions.f {"a":1}',
    'analysis\nto=functions.f {"a":1}',
)
ESCAPES = {
    "none": lambda text: text,
    "json": lambda text: text.replace("<", "\\u003c").replace(">", "\\u003e"),
    "json, bars too": lambda text: text.replace("<", "\\u003C").replace("|", "\\u007c"),
    "html": lambda text: text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
    "html twice": lambda text: text.replace("<", "&amp;lt;").replace("|", "&amp;vert;").replace(">", "&amp;gt;"),
    "html by numbers": lambda text: text.replace("<", "&#060;").replace("|", "&#124;").replace(">", "&#62;"),
    "html by hexadecimal numbers": lambda text: text.replace("<", "&#x3c;").replace("|", "&#x7C;"),
}


def escape_as_dotnet(found):
    """Return quotes and markup as hexadecimal escapes, like System.Text.Json."""
    is_escape = found.group().startswith("\\") and found.group() != '\\"'
    return found.group() if is_escape else f"\\u{ord(found.group()[-1]):04X}"


WRITERS = {
    "json": json.dumps,
    "without spaces": lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False),
    "for HTML": lambda value: (
        json.dumps(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").replace("/", "\\/")
    ),
    ".NET": lambda value: re.sub(r"\\.|[<>&'+`]", escape_as_dotnet, json.dumps(value, separators=(",", ":"))),
    "letters escaped": lambda value: re.sub(
        "[a-z]t", lambda found: f"\\u{ord(found.group()[0]):04x}t", json.dumps(value)
    ),
}


def chunk(delta, **more):
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": None, **more}]}


def whole(text):
    message = {"role": "assistant", "content": text}
    return {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


def events(pieces):
    return [
        chunk({"role": "assistant"}),
        *(chunk({"content": piece}) for piece in pieces),
        chunk({}, finish_reason="stop"),
    ]


def cut(text, places):
    marks = [0, *sorted(places), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(marks)]


RESPONSES = {
    "events": lambda pieces, write: events(pieces),
    "stream as text": lambda pieces, write: "".join(f"data: {write(event)}\n\n" for event in events(pieces)),
    "body as text": lambda pieces, write: write(whole("".join(pieces))),
    "body": lambda pieces, write: whole("".join(pieces)),
}


def record(pieces, response, write):
    asked = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    return write({"response": RESPONSES[response](pieces, write), "request": asked}).encode()


@st.composite
def leaked_records(draw):
    text = draw(st.sampled_from(LEAKS))
    text = ESCAPES[draw(st.sampled_from(sorted(ESCAPES)))](text)
    places = st.sets(st.integers(1, len(text) - 1), max_size=6) | st.just(range(1, len(text)))
    pieces = cut(text, draw(places))
    return record(pieces, draw(st.sampled_from(sorted(RESPONSES))), WRITERS[draw(st.sampled_from(sorted(WRITERS)))])


@pytest.mark.parametrize("library", LIBRARY_NAMES)
@settings(max_examples=150, deadline=None)
@given(data=leaked_records())
@example(data=record(cut("a <|end|>", {3}), "events", WRITERS["json"]))
@example(data=record(["&a", "m", "p;l", "t;&amp;vert;return&amp;vert;&amp;gt;"], "events", WRITERS["json"]))
@example(data=record(cut(LEAKS[8], {6}), "stream as text", WRITERS[".NET"]))
@example(data=record(["Hello!&amp;lt;&amp;vert;return&amp;vert;&amp;gt;"], "body", WRITERS["for HTML"]))
@example(data=record(["&#x3c;", "&#x7C;return&#x7C;>"], "stream as text", WRITERS["for HTML"]))
@example(data=record(["a &", "#60;&#124;return&#124;&#62;"], "events", WRITERS["for HTML"]))
def test_a_leak_has_a_needle_however_it_is_written(library, data):
    begin = data.index(b"{")
    block = b'{"response": {}}\n' + data + b'\n{"role": "assistant", "content": "a & b; analysis"}'
    assert [block[start:end] for start, end in find_lines(block, library)] == [data[begin:]]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_hyperscan_finds_what_a_pattern_describes(data):
    hyperscan = pytest.importorskip("hyperscan")
    pattern = data.draw(st.sampled_from(sorted({*NEEDLES, *itertools.chain.from_iterable(TOGETHER)})))
    text = data.draw(st.from_regex(pattern.encode(), fullmatch=True))
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(expressions=[pattern.encode()], ids=[0], elements=1, flags=[hyperscan.HS_FLAG_SINGLEMATCH])
    found = []
    database.scan(b'{"content": ' + text + b" and more", match_event_handler=lambda *hit: found.append(hit))
    assert found


@pytest.mark.parametrize("library", LIBRARY_NAMES)
@pytest.mark.parametrize("response", ["events", "stream as text"])
@pytest.mark.parametrize(
    "pieces",
    [
        ["if a", " <", " b", ' "', '",', " or", "\u00f6"],
        ["'<", "b", '">\n', '"', "&&", "& c"],
        [" assistant", "a", " comments", " system", " stream", "s"],
        ["a", "is", "s", "ana"],
        ["comment", "=", " =None", " to"],
        ["t", "s", " n", "c"],
    ],
)
def test_ordinary_pieces_of_a_stream_are_no_needle(library, response, pieces):
    data = record(pieces, response, WRITERS["json"])
    assert not list(find_lines(b"{}\n" + data, library))


@pytest.mark.parametrize("library", LIBRARY_NAMES)
def test_quoted_signs_of_a_description_are_no_needle(library):
    data = record(['one of "$" / "&" / "+" / "," / ";"'], "body", WRITERS["json"])
    assert not list(find_lines(data, library))


@pytest.mark.parametrize("escape", sorted(ESCAPES))
def test_a_marker_has_a_needle_wherever_it_is_cut_twice(escape):
    text = ESCAPES[escape]("!<|end|>")
    begun = range(1, text.find("end"))
    records = [
        record(cut(text, {*places}), "stream as text", write)
        for places in itertools.combinations_with_replacement(begun, 2)
        for write in WRITERS.values()
    ]
    ends = [*itertools.accumulate(len(one) + 1 for one in records)]
    found = list(find_lines(b"\n".join(records), "hyperscan"))
    assert found == [(end - len(one) - 1, end - 1) for one, end in zip(records, ends, strict=True)]


@pytest.mark.parametrize(
    ("data", "records"),
    [
        (b"", 0),
        (b"\n", 0),
        (b"\n\n \r\n\t", 0),
        (b"a\n\nb", 2),
        (b"\na\r\n \r\n\n\nb\n\n", 2),
        (b"a" * 5000 + b"\n" + b"b" * 70000 + b"\n", 2),
        (b"a\n" * 40000, 40000),
        (b"a\n\n" * 40000, 40000),
    ],
)
def test_lines_of_any_length_are_counted_unless_they_are_blank(tmp_path, data, records):
    path = tmp_path / "log"
    path.write_bytes(data)
    block = blocks.Block(file=str(path), start=0, end=len(data), plan=needles())
    selection = blocks.read_block(block)
    assert selection.passed_over + len(selection.lines) == records


def test_a_block_is_read_in_parts_of_whole_lines(tmp_path, monkeypatch):
    path = tmp_path / "log"
    data = b"\n".join([record([LEAKS[0]], "body", WRITERS["json"]), b"{}", b"", b"{}" + b" " * 3000, b"<|end|>", b"{}"])
    path.write_bytes(data)
    block = blocks.Block(file=str(path), start=0, end=len(data), plan=needles())
    whole = blocks.read_block(block)
    assert [line.data for line in whole.lines] == [data.split(b"\n")[0], b"<|end|>"]
    for size in (1, 7, 2000):
        monkeypatch.setattr(blocks, "_PART_BYTES", size)
        assert blocks.read_block(block) == whole


def test_without_the_library_for_literals_the_same_lines_are_found(log, monkeypatch):
    data = log.read_bytes()
    found = [*find_lines(data, "google-re2")]
    monkeypatch.setattr(literal_search, "is_installed", lambda: False)
    monkeypatch.setattr(literal_search, "lines_with_literals", None)
    assert len(found) == 3
    assert [*find_lines(data, "google-re2")] == found


def failures(lines, plan):
    """Return the failing places by check, and the tally."""
    batch = Batch(
        file="log", lines=tuple(Line(offset=1 + place, number=1, data=line) for place, line in enumerate(lines))
    )
    result = scan_batch(batch, replace(STRUCTURE, plan=plan))
    rows = [json.loads(row) for row in result.failures.splitlines()]
    return [row for row in rows if row["check"] in NEEDLE_CHECKS], result.tally


@pytest.fixture(scope="module")
def leaking_records():
    """Every way to leak, each as a body, a stream, and with its token ids."""
    if not BENCHMARKS.exists():
        pytest.skip("the benchmarks are in the checkout only")
    sys.path.insert(0, str(BENCHMARKS / "leaks"))
    try:
        from innocent.case import Call, Case, Shape, exchange
        from leaking import WAYS
    finally:
        sys.path.remove(str(BENCHMARKS / "leaks"))
    records = []
    talk = Case(user="Hi", content="Hello, how are you?", reasoning="We need to greet the user. Be short.")
    for number, way in enumerate(WAYS):
        case = replace(talk, calls=(Call(name="search", arguments='{"q": "Oslo"}'),)) if way.calls else talk
        what = way.leak(case)
        shape = Shape(letters=(0, 1, 3, 7, 40)[number % 5], ids=number % 7 == 0)
        x = exchange(case, what, shape)
        data = x.response.chunks[0].data.decode()
        pair = {"request": json.loads(x.request.body), "response": data if shape.letters else json.loads(data)}
        records += [write(pair).encode("utf-8", "replace") for write in WRITERS.values()]
    return records


@pytest.mark.parametrize("library", LIBRARY_NAMES)
def test_each_way_to_leak_is_found_as_by_all_checks(leaking_records, library):
    expected, judged = failures(leaking_records, AuditPlan())
    found, some = failures(leaking_records, AuditPlan(name=PlanName.NEEDLES, sample=0.0, library=library))
    assert len(expected) > len(leaking_records) // 2
    assert found == expected
    assert judged.exchanges == len(leaking_records) == some.exchanges + some.passed_over


def needles(library="hyperscan", sample=0.0):
    return AuditPlan(name=PlanName.NEEDLES, sample=sample, library=library)


def scanned(path, plan, **size):
    """Return the results of a file, batch by batch."""
    return [scan_batch(batch, replace(STRUCTURE, plan=plan)) for batch in batches([path], plan=plan, **size)]


@pytest.fixture
def log(tmp_path):
    clean, leak = (record([text], "body", WRITERS["json"]) for text in ("Hello!", LEAKS[0]))
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\n".join([leak, clean, b"", clean, leak, b"no JSON", clean, leak]))
    return path


@pytest.mark.parametrize("library", LIBRARY_NAMES)
@pytest.mark.parametrize("size", [1, 700, blocks.BLOCK_BYTES])
def test_blocks_of_any_size_give_the_same_failures(log, monkeypatch, size, library):
    whole = b"".join(result.failures for result in scanned(log, AuditPlan()))
    monkeypatch.setattr(blocks, "BLOCK_BYTES", size)
    results = scanned(log, needles(library))
    total = sum((result.tally for result in results), Tally())
    assert [json.loads(row)["exchange"] for row in whole.splitlines()].count(f"{log}@0") > 0
    by_needle = [
        row for row in whole.splitlines() if json.loads(row)["check"] in NEEDLE_CHECKS or f"{log}@0" in row.decode()
    ]
    assert b"".join(result.failures for result in results).splitlines() == by_needle
    assert (total.exchanges, total.unreadable) == (3, 0)


def test_the_first_record_of_a_file_is_judged_by_all_checks(log):
    first = log.read_bytes().split(b"\n")[1]
    log.write_bytes(first + b"\n" + first)
    (result,) = scanned(log, needles())
    assert (result.tally.exchanges, result.tally.passed_over) == (1, 1)
    assert result.tally.checks["usage.adds_up"].counts


@pytest.mark.parametrize("name", [PlanName.NEEDLES, PlanName.STRUCTURE])
def test_a_sample_is_the_same_however_a_log_is_divided(log, monkeypatch, name):
    log.write_bytes(log.read_bytes().replace(b"no JSON", b"{}") * 6)
    plan = replace(needles(sample=0.5), name=name)
    whole = sum((result.tally for result in scanned(log, plan)), Tally())
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1)
    parts = sum((result.tally for result in scanned(log, plan, lines=1)), Tally())
    assert whole.checks == parts.checks
    assert 0 < whole.exchanges < 36


def test_the_lines_around_one_that_is_too_long_are_judged(log, monkeypatch):
    data = log.read_bytes().split(b"\n")[0]
    long = data + b" " * (LINE_LIMIT + 1)
    log.write_bytes(b"\n".join([data, long, data]))
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2 * len(data))
    total = sum((result.tally for result in scanned(log, needles())), Tally())
    assert total.exchanges == 2
    assert list(total.unreadable_by_kind) == ["the line is too long"]


def test_lines_that_are_added_during_an_audit_are_left_out(log):
    parts = list(batches([log], plan=needles()))
    before = [part.digest for part in parts]
    with log.open("ab") as file:
        file.write(b"\n" + record([LEAKS[0]], "body", WRITERS["json"]))
    assert [part.digest for part in parts] == before


def test_a_file_of_another_format_is_selected_record_by_record(log):
    lines = log.read_bytes().split(b"\n")
    log.write_text(json.dumps([json.loads(line) for line in lines if line.startswith(b"{")], indent=1), "utf-8")
    (result,) = scanned(log, needles())
    assert (result.tally.exchanges, result.tally.passed_over) == (3, 3)


def test_auto_chooses_by_the_size_of_the_files(log, monkeypatch):
    assert choose_plan(PlanName.AUTO, None, [str(log)]) == AuditPlan()
    with log.open("r+b") as file:
        file.truncate(LARGE_LOG + 1)
    large = choose_plan(PlanName.AUTO, None, [str(log)])
    assert (large.name, large.sample) == (PlanName.NEEDLES, 0.01)
    assert choose_plan(PlanName.AUTO, 0.5, [str(log)]) == AuditPlan(sample=0.5)
    assert str(large).startswith("plan needles: leaks of markers and channel words in every record (hyperscan); all")
    monkeypatch.setattr("harmony_conformance.audit.plans.plan.installed_library", lambda: "")
    without = choose_plan(PlanName.AUTO, None, [str(log)])
    assert (without.name, without.sample) == (PlanName.STRUCTURE, 1.0)
    assert str(without) == (
        "plan structure: all checks on every record; not needles, as for other logs above 2 GiB: neither hyperscan nor"
        " google-re2 is installed (extra needles)"
    )
    assert choose_plan(PlanName.AUTO, 0.5, [str(log)]) == AuditPlan(sample=0.5)
    with pytest.raises(UsageError, match="expected hyperscan or google-re2, got neither"):
        choose_plan(PlanName.NEEDLES, None, [])


def test_a_problem_of_reading_is_kept(log):
    problem = UnreadableLine(offset=3, number=1, kind="a problem")
    result = scan_batch(Batch(file="log", lines=(problem,)), replace(STRUCTURE, plan=needles()))
    assert result.tally.unreadable == 1


def test_a_file_that_is_truncated_during_an_audit_has_a_last_line(log, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1000)
    parts = blocks.split_file(str(log), needles())
    first = next(parts)
    log.write_bytes(log.read_bytes()[: first.end])
    (last,) = parts
    assert (last.offset, last.kind) == (first.end, "the file became shorter while it was read")
