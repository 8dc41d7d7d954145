"""Grades as JSON and as JUnit XML."""

from __future__ import annotations

import re
from typing import Final
from xml.etree import ElementTree as ET

from harmony_conformance.golden.grading.difference import AnswerDifference
from harmony_conformance.golden.grading.grade import GradeReport, VectorCause, VectorGrade, VectorOutcome
from harmony_conformance.golden.grading.grade_text import outcome_counts, uncompared_counts
from harmony_conformance.json_value import JsonObject

_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ELEMENTS: Final = {
    VectorOutcome.FAILED: "failure",
    VectorOutcome.UNREADABLE: "error",
    VectorOutcome.UNSUPPORTED: "skipped",
    VectorOutcome.NOT_RUN: "skipped",
    VectorOutcome.DIFFERENT: "system-out",
}
_COUNTED: Final = {"failures": "failure", "errors": "error", "skipped": "skipped"}


def report_json(report: GradeReport) -> JsonObject:
    """Return the report as a JSON object, with the outcome of every vector."""
    return {
        "exit_code": int(report.exit_code),
        "verdict": report.verdict,
        "implementation": report.name,
        "counts": {kind: dict(counts) for kind, counts in outcome_counts(report).items()},
        "causes": [cause_json(cause) for cause in report.causes],
        "problems": [*report.problems],
        "uncompared": dict(uncompared_counts(report)),
        "vectors": [_grade_json(one) for one in report.grades],
    }


def cause_json(cause: VectorCause) -> JsonObject:
    """Return a cause as a JSON object."""
    return {
        "sentence": cause.sentence,
        "kinds": [*cause.kinds],
        "details": dict(cause.details),
        "example": {"comment": cause.example.vector.comment, **_grade_json(cause.example)},
        "vectors": [one.vector.id for one in cause.grades],
    }


def report_junit(report: GradeReport) -> str:
    """Return the report as JUnit XML: a suite for each kind, a case for each vector."""
    root = ET.Element("testsuites", {"name": _xml(report.name)})
    for kind in outcome_counts(report):
        suite = ET.SubElement(root, "testsuite", {"name": kind})
        for one in report.grades:
            if one.kind == kind:
                suite.append(_case(one))
        suite.set("tests", str(len(suite)))
        for name, element in _COUNTED.items():
            suite.set(name, str(len(suite.findall(f"testcase/{element}"))))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode")


def _case(grade: VectorGrade) -> ET.Element:
    group, _, name = grade.vector.id.rpartition("/")
    case = ET.Element("testcase", {"classname": group.replace("/", "."), "name": name})
    element = _ELEMENTS.get(grade.outcome)
    if element is not None:
        content = ET.SubElement(case, element)
        if element != "system-out":
            content.set("message", _xml(grade.traits[0] or grade.outcome.value))
        if grade.difference is not None:
            content.text = _xml(_details(grade.vector.comment, grade.difference))
    return case


def _details(comment: str, difference: AnswerDifference) -> str:
    before = f"\nafter    {difference.before}" if difference.before else ""
    sides = f"expected {difference.expected}\ngot      {difference.actual}"
    return f"{comment}\nat {difference.where}{before}\n{sides}"


def _grade_json(grade: VectorGrade) -> JsonObject:
    value: JsonObject = {"id": grade.vector.id, "outcome": grade.outcome.value}
    if (difference := grade.difference) is not None:
        sides: JsonObject = {"expected": difference.expected, "actual": difference.actual}
        before: JsonObject = {"before": difference.before} if difference.before else {}
        value |= {"trait": difference.traits[0], "where": difference.where, **before, **sides}
    if grade.problem:
        value["problem"] = grade.problem
    if grade.uncompared:
        value["uncompared"] = [*sorted(grade.uncompared)]
    return value


def _xml(value: str) -> str:
    """Return the text with characters that XML does not allow as escapes."""
    return _NOT_XML.sub(lambda found: f"\\u{ord(found.group()):04x}", value)
