import json
import re
from pathlib import Path

import pytest

from harmony_conformance import checks
from harmony_conformance.apis.registry import APIS
from harmony_conformance.checks import CHECKS, FAMILIES
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.golden import data as golden
from harmony_conformance.judge.check import MUST, SHOULD, Finding, Severity, Verdict, check, comparison, variant
from harmony_conformance.judge.condition import UnmetReason, condition, evidence
from harmony_conformance.judge.harmony_clauses import CLAUSES
from harmony_conformance.report.formats.check_list import applies_to, checks_json, checks_markdown
from harmony_conformance.transport.messages import Request

HERE = Path(__file__).resolve().parents[2]
EXAMPLES = tuple(golden.examples())
EACH = pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.id) for rule in CHECKS])


@EACH
def test_the_id_is_module_and_function(rule):
    family, _, function = rule.id.partition(".")
    module = getattr(checks, family)
    assert module in FAMILIES
    assert rule in [getattr(one, function, None) for one in getattr(module, "MODULES", (module,))]


def test_ids_are_unique():
    ids = [rule.id for rule in CHECKS]
    assert sorted(set(ids)) == sorted(ids)


@pytest.mark.parametrize(
    ("rule", "subjects"),
    [
        pytest.param(
            "errors.valid_request_is_answered", ("4xx", "5xx"), id="refusals of valid requests, and server errors"
        ),
        pytest.param("errors.error_has_error_status", ("2xx",), id="an error under 200"),
        pytest.param("errors.refusal_explains", ("4xx", "explanation"), id="reasons of refusals"),
        pytest.param("stop_tokens.limit_is_kept", ("upper bound", "`length`"), id="the bound, and the word for it"),
        pytest.param(
            "streaming.one_identity", ("same ID", "same timestamp", "model"), id="id, time and model of chunks"
        ),
        pytest.param("responses.status_says_how_it_ended", ("`incomplete`", "incomplete_details"), id="status"),
    ],
)
def test_the_quotation_covers_what_the_check_finds(rule, subjects):
    quotation = next(one.clause.quotation for one in CHECKS if one.id == rule)
    assert [subject for subject in subjects if subject not in quotation] == []


def test_every_module_of_the_folder_is_a_family():
    here = Path(checks.__file__).parent
    modules = {path.stem for path in (*here.glob("*.py"), *(file.parent for file in here.glob("*/__init__.py")))}
    assert modules - {"__init__", "helpers", "rendering"} == {family.__name__.rpartition(".")[2] for family in FAMILIES}


@EACH
def test_the_requirement_is_one_sentence(rule):
    assert re.fullmatch(r"[A-Za-z`].*\.", rule.requirement)
    assert re.search(r"\.\s+[A-Z]", rule.requirement) is None


@EACH
def test_a_must_check_has_a_quotation(rule):
    assert rule.severity is SHOULD or rule.clause.quotation
    assert rule.clause.source


@EACH
def test_the_conditions_complete_applies_to(rule):
    for needed in rule.when:
        assert needed.description, "a condition without a docstring"
        assert not needed.description.endswith(".")
        assert needed.description[0].islower()
        assert re.match(r"[a-z`]+", needed.description)
    assert applies_to(rule)


@EACH
def test_the_reason_is_prose(rule):
    assert rule.reason == "" or re.fullmatch(r"[A-Z`].*[.)`]", rule.reason)


def test_the_document_is_up_to_date():
    assert (HERE / "CHECKS.md").read_text("utf-8") == checks_markdown() + "\n"


@EACH
def test_the_document_tells_all_of_a_check(rule):
    document = checks_markdown()
    section = document[document.index(f"### {rule.id}\n") :]
    section = section[: section.find("\n### ")] if "\n### " in section else section
    for part in (rule.requirement, rule.reason, applies_to(rule), rule.clause.quotation, rule.clause.source):
        assert part in section


def test_the_json_form_has_a_record_for_each_check():
    records = json.loads(checks_json())
    assert [record["id"] for record in records] == [rule.id for rule in CHECKS]
    assert {record["severity"] for record in records} == {"must", "should"}
    assert {record["judges"] for record in records} == {"exchange", "series"}
    assert all(record["clause"]["quotation"] for record in records)


@EACH
def test_each_defect_a_check_names_is_shown_by_one_of_its_examples(rule):
    shown = {defect for example in EXAMPLES if example.check == rule.id for defect in example.defects}
    named = set(re.findall(r"\b[A-Z]\d\d\b", f"{rule.requirement} {rule.reason}"))
    assert named - shown == set()


@condition
def is_asked(x):
    """requests with a body"""
    return bool(x.request.body)


@evidence
def has_two(series):
    """series of two"""
    return len(series.exchanges) > 1


@check(MUST, spec="chat#usage", when=is_asked)
def something(x):
    """It is so.

    Because otherwise
    it is not (defect V01).
    """
    yield Finding(message=x.id)


@comparison(SHOULD, spec="harmony#final", when=(has_two,))
def something_else(series):
    """They agree."""
    yield variant("they differ", where="there", expected="one", actual="other")


ONE = Exchange(id="one", request=Request(path="/", body=b"{}"))
NONE = Exchange(id="none", request=Request(path="/", body=b""))


def test_a_check_is_made_of_its_function():
    assert (something.id, something.family) == ("test_checks.something", "test_checks")
    assert (something.severity, something.clause.id, something.subject) == (Severity.MUST, "chat#usage", Exchange)
    assert (something.requirement, something.reason) == ("It is so.", "Because otherwise it is not (defect V01).")
    assert list(something.run(ONE)) == [Finding(message="one")]


def test_a_comparison_judges_a_series():
    assert something_else.subject is Series
    assert [finding.verdict for finding in something_else.run(Series(name="s", exchanges={}))] == [Verdict.VARIANT]


@pytest.mark.parametrize(
    ("rule", "subject", "expected"),
    [
        pytest.param(something, ONE, None, id="it holds"),
        pytest.param(something, NONE, ("requests with a body", UnmetReason.BEHAVIOUR), id="it does not hold"),
        pytest.param(
            something_else,
            Series(name="s", exchanges={"a": ONE}),
            ("series of two", UnmetReason.EVIDENCE),
            id="evidence is missing",
        ),
        pytest.param(something_else, Series(name="s", exchanges={"a": ONE, "b": ONE}), None, id="evidence is there"),
    ],
)
def test_the_first_condition_that_does_not_hold_is_reported(rule, subject, expected):
    unmet = rule.first_unmet(subject)
    assert expected == (None if unmet is None else (unmet.description, unmet.unmet_reason))


def test_an_unknown_clause_can_not_be_cited():
    with pytest.raises(ValueError, match=r"invalid spec: expected a clause, .* got .harmony#no-such-clause."):
        check(MUST, spec="harmony#no-such-clause", when=is_asked)(something.run)


def test_every_clause_is_cited():
    cited = {rule.clause.id for rule in CHECKS}
    sources = Path(checks.__file__).parent.rglob("*.py")  # a finding may name a clause of its own
    cited |= {name for source in sources for name in re.findall(r'"([a-z-]+#[a-z-]+)"', source.read_text("utf-8"))}
    of_other_apis = {
        f"{api}#{name.removeprefix('chat#')}" for api in APIS for name in cited if name.startswith("chat#")
    }
    of_other_apis |= {f"{api}#reasoning" for api in APIS}  # in place of "raw-cot#output"
    files = Path(checks.__file__).parent.rglob("*.py")
    sources = "\n".join(file.read_text("utf-8") for file in files)
    of_findings = {name for name in CLAUSES if f'clause="{name}"' in sources}
    assert cited <= CLAUSES.keys() <= cited | of_other_apis | of_findings
