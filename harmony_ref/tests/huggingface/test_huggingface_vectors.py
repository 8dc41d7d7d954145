"""Every vector of golden/template and golden/response_schema, by this package and by transformers.

The texts of other people are looked for in the folder that HARMONY_GUIDE names, or in one beside the checkout, and
the chat template of gpt-oss in the file that HARMONY_GPT_OSS_TEMPLATE names.
"""

import ast
import hashlib
import json
import os
import re
import runpy
import sys
import warnings
from pathlib import Path

import pytest

pytest.importorskip("jinja2", reason="the extra huggingface is not installed")
pytest.importorskip("jmespath", reason="the extra huggingface is not installed")

from harmony_ref.huggingface.golden_answers import (
    AbsentSourceError,
    canonical_sha256,
    response_schema_answer,
    template_answer,
)

HERE = Path(__file__)
ROOT = HERE.parents[3]
GOLDEN = ROOT / "golden"
ORACLE = runpy.run_path(str(HERE.with_name("transformers_oracle.py")))
GUIDE = Path(os.environ.get("HARMONY_GUIDE", ROOT.parent / "shared" / "spec" / "guide"))
KOREAN_TEMPLATE = GUIDE / "chatml-tool-template-ko.jinja.txt"
PARSING_GUIDE = GUIDE / "transformers-response-parsing-ko.md"
GPT_OSS_TEMPLATE = os.environ.get("HARMONY_GPT_OSS_TEMPLATE")


def vectors(kind):
    files = sorted((GOLDEN / kind).glob("*.json"))
    tests = [test for file in files for test in json.loads(file.read_text("utf-8"))["tests"]]
    return [pytest.param(test, id=test["id"]) for test in tests]


def without_the_viewer(text):
    """The Korean template was saved from a web page: three lines stand before it, and a bar after it."""
    return "\n".join(text.split("\n")[3:]).removesuffix(" |")


@pytest.fixture(scope="module")
def templates():
    texts = []
    if KOREAN_TEMPLATE.exists():
        texts.append(without_the_viewer(KOREAN_TEMPLATE.read_text("utf-8")))
    if GPT_OSS_TEMPLATE:
        texts.append(Path(GPT_OSS_TEMPLATE).read_text("utf-8"))
    return {hashlib.sha256(text.encode()).hexdigest(): text for text in texts}


@pytest.fixture(scope="module")
def guide():
    if not PARSING_GUIDE.exists():
        pytest.skip(f"the response-parsing guide is not at {PARSING_GUIDE}: HARMONY_GUIDE names its folder")
    return re.findall(r"^```(\w+)\n(.*?)^```$", PARSING_GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def schemas_of(blocks):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the guide's texts with backslashes are not raw
        return [ast.literal_eval(body) for kind, body in blocks if kind == "python" and body.startswith("{")]


@pytest.fixture(scope="module")
def schemas():
    if not PARSING_GUIDE.exists():
        return {}
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", PARSING_GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return {canonical_sha256(schema): schema for schema in schemas_of(blocks)}


def worker_of(python):
    worker = ORACLE["Worker"](python)
    yield worker
    worker.close()


@pytest.fixture(scope="module")
def transformers_templates():
    pytest.importorskip("transformers")
    yield from worker_of(sys.executable)


@pytest.fixture(scope="module")
def transformers_schemas():
    python = ORACLE["schema_python"]()
    if python is None:
        pytest.skip(f"{ORACLE['SCHEMA_PYTHON']} names no environment with transformers 5.14.1")
    yield from worker_of(python)


def without_harmony(answer):
    return {name: value for name, value in answer.items() if name not in {"harmony", "tokens"}}


def asked(test, name, sources):
    given = {**test["input"]}
    given.pop("harmony", None)
    if set(given[name]) == {"name", "sha256"}:
        if given[name]["sha256"] not in sources:
            pytest.skip(f"{given[name]['name']} is not here")
        given[name] = sources[given[name]["sha256"]]
    return given


def answered(answer, test, sources):
    try:
        return answer(test["input"], sources)
    except AbsentSourceError as absent:
        pytest.skip(str(absent))


@pytest.mark.parametrize("test", vectors("template"))
def test_a_template_is_rendered_as_the_vector_says(test, templates):
    assert answered(template_answer, test, templates) == test["expected"]


@pytest.mark.parametrize("test", vectors("template"))
def test_transformers_renders_a_template_as_the_vector_says(test, templates, transformers_templates):
    answer = transformers_templates.answer("template", asked(test, "template", templates))
    assert answer == without_harmony(test["expected"])


@pytest.mark.parametrize("test", vectors("response_schema"))
def test_a_response_is_read_as_the_vector_says(test, schemas):
    answer = answered(response_schema_answer, test, schemas)
    assert json.dumps(answer) == json.dumps(test["expected"])  # 1.0 is not 1, nor is true


@pytest.mark.parametrize("test", vectors("response_schema"))
def test_transformers_reads_a_response_as_the_vector_says(test, schemas, transformers_schemas):
    answer = transformers_schemas.answer("response_schema", asked(test, "schema", schemas))
    assert json.dumps(answer) == json.dumps(without_harmony(test["expected"]))


@pytest.mark.parametrize("test", [param for param in vectors("template") if "harmony" in param.values[0]["input"]])
def test_openai_harmony_renders_the_conversation_beside_it(test, oracle):
    given = test["input"]["harmony"]
    rendered = oracle.render_all(given["mode"], given["messages"], True, "assistant")
    expected = test["expected"]["harmony"]
    assert oracle.inner.decode_utf8(rendered["ok"]) == expected["text"]
    assert expected.get("tokens", rendered["ok"]) == rendered["ok"]


@pytest.mark.parametrize(
    "test", [param for param in vectors("response_schema") if "harmony" in param.values[0]["input"]]
)
def test_openai_harmony_reads_the_response_beside_it(test, oracle):
    given = test["input"]["harmony"]
    marked = sorted(set(re.findall(r"<\|\w+\|>", test["input"]["response"])))
    ids = given.get("tokens") or oracle.inner.encode(test["input"]["response"], marked)
    read = oracle.parse(ids, given["role"], True)
    expected = test["expected"]["harmony"]
    assert oracle.inner.decode_utf8(ids) == test["input"]["response"]
    assert read.get("ok", read.get("err", [""])[-1]) == expected.get("messages", expected.get("error", {}).get("text"))


@pytest.mark.parametrize("kind", ["template", "response_schema"])
def test_the_files_have_the_form_of_their_schema(kind):
    jsonschema = pytest.importorskip("jsonschema")
    form = jsonschema.Draft202012Validator(json.loads((GOLDEN / "schema" / f"{kind}.schema.json").read_text("utf-8")))
    for file in (GOLDEN / kind).glob("*.json"):
        assert [error.message for error in form.iter_errors(json.loads(file.read_text("utf-8")))] == [], file.name


def test_a_flag_stands_exactly_where_the_published_template_parts_from_harmony():
    for param in vectors("template"):
        test = param.values[0]
        if "harmony" in test["input"]:
            ours, harmony = test["expected"], test["expected"]["harmony"]
            same = (ours.get("text"), ours.get("tokens")) == (harmony.get("text"), harmony.get("tokens"))
            assert same is not bool(test["flags"]), test["id"]


def message_of(harmony):
    """What a schema would have to read: the message of Harmony's, if the form of a message has a place for all of it."""
    message = {"role": "assistant"}
    for part in harmony.get("messages", [{"role": "none"}]):
        match part:
            case {"role": "assistant", "recipient": str(to), "channel": "commentary"} if to.startswith("functions."):
                function = {"name": to.removeprefix("functions."), "arguments": loads_or_none(part["content"])}
                message.setdefault("tool_calls", []).append({"type": "function", "function": function})
            case {"role": "assistant", "channel": "final"} if "recipient" not in part:
                message["content"] = message.get("content", "") + part["content"]
            case {"role": "assistant", "channel": "analysis"} if "recipient" not in part:
                message["thinking"] = message.get("thinking", "") + part["content"]
            case _:
                message["no place for"] = part
    return message


def loads_or_none(text):
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def test_a_flag_stands_exactly_where_the_published_schema_parts_from_harmony():
    compared = [param.values[0] for param in vectors("response_schema") if "harmony" in param.values[0]["input"]]
    for test in compared:
        same = test["expected"].get("value") == message_of(test["expected"]["harmony"])
        assert same is not bool(test["flags"]), test["id"]
    assert len(compared) >= 40


PAGE = (ROOT / "docs" / "hugging-face.md").read_text("utf-8")


@pytest.mark.parametrize("kind", ["template", "response_schema"])
def test_the_page_names_every_vector_of_gpt_oss_and_none_that_is_not_there(kind):
    before, after = PAGE.split("## The response schema")
    part = before if kind == "template" else after.split("## Scope of this package")[0]
    named = set(re.findall(r"`([a-z0-9-]+)`(?=[,;)\n]| \||: |\.$)", part))
    there = {param.id.split("/")[2] for param in vectors(kind) if "/gpt-oss/" in param.id}
    assert there <= named
    ids = {param.id for param in vectors("template") + vectors("response_schema")}
    assert set(re.findall(r"`((?:template|response_schema)/[^`…]+)`", PAGE)) <= ids
    rows = [line.split("|")[-2] for line in part.replace("\\|", "").split("\n") if line.startswith("| ")][2:]
    assert {name for row in rows for name in re.findall(r"`([^`]+)`", row)} <= there


def printed_message(blocks):
    return json.loads(next(body for kind, body in blocks if kind == "json"))


def test_the_guide_s_own_examples_of_raw_output_are_not_read_by_its_own_schema(guide):
    # The guide prints a message with reasoning and a call. Its first raw output has the channel in the place of the role;
    # its second has newlines, added "for clarity", in the one place where the schema takes none.
    _, schema = schemas_of(guide)
    (first,) = (body for kind, body in guide if kind == "txt")
    second = next(body for kind, body in guide if kind == "text" and "<|channel|>" in body)
    inline = {"schema": schema}
    assert response_schema_answer({**inline, "response": first}, {}) == {"value": {"role": "assistant"}}
    assert set(response_schema_answer({**inline, "response": second}, {})["value"]) == {"role", "thinking"}
    repaired = re.sub(r"\n(?=<\|)|(?<=\|>)\n|(?<=commentary )\n", "", second.rstrip())
    read = response_schema_answer({**inline, "response": repaired}, {})["value"]
    (call,) = read["tool_calls"]
    (printed,) = printed_message(guide)["tool_calls"]
    assert call == {"type": "function", "function": printed}  # the guide prints the call without its wrapper


def test_the_guide_prints_the_same_patterns_that_the_vectors_name(guide, schemas):
    named = {
        test["input"]["schema"]["sha256"]
        for param in vectors("response_schema")
        if "sha256" in (test := param.values[0])["input"]["schema"]
    }
    assert named == set(schemas)


@pytest.mark.parametrize(("kind", "at_least"), [("template", 120), ("response_schema", 150)])
def test_there_are_vectors(kind, at_least):
    ids = [param.id for param in vectors(kind)]
    assert len(set(ids)) == len(ids) >= at_least


def test_a_vector_about_an_absent_text_says_which():
    given = {"template": {"name": "another template", "sha256": "0" * 64}, "messages": [{"role": "user"}]}
    with pytest.raises(AbsentSourceError, match="missing another template") as caught:
        template_answer(given, {})
    assert (caught.value.name, caught.value.sha256) == ("another template", "0" * 64)
