"""The files of a run are the same whether one process draws them or two, and what keeps one from being written is told."""

import gzip
import lzma
import sys

import pytest

from harmony_conformance.judge.check import Severity
from harmony_conformance.report import files
from harmony_conformance.report.files import RENDERERS, REPORT, read_report_file, write_files
from harmony_conformance.report.model import InvalidReportError

MUST = frozenset({Severity.MUST})


@pytest.fixture(params=["one process", "two processes"])
def drawn(request, monkeypatch):
    """Who draws: asked for, since few tests run in a process that may fork."""
    beside = []
    if request.param == "two processes":
        if sys.platform != "linux" or (not files.may_fork() and sys.version_info >= (3, 12)):
            pytest.skip("this process has threads, and Python warns of its copies")
        monkeypatch.setattr(files, "may_fork", lambda: True)
        monkeypatch.setattr(files, "_MIN_FOR_SECOND_PROCESS", 1)
        monkeypatch.setattr(files, "cores", lambda: 2)
        forked = files.forked
        monkeypatch.setattr(files, "forked", lambda *work: beside.append(forked(*work)) or beside[-1])
    yield
    assert len(beside) == (request.param == "two processes")


def test_each_file_holds_what_its_renderer_says(drawn, real_report, tmp_path):
    write_files(real_report, tmp_path, MUST)
    told = {path.name: path.read_text("utf-8", "backslashreplace") for path in tmp_path.iterdir()}
    assert told.pop(REPORT) == "".join(f"{line}\n" for line in real_report.lines())
    assert told == {
        "report.html": RENDERERS["html"](real_report, MUST),
        "report.md": RENDERERS["md"](real_report, MUST),
        "junit.xml": RENDERERS["junit"](real_report, MUST),
    }


def test_a_file_that_cannot_be_written_is_an_error(drawn, real_report, tmp_path, capfd):
    (tmp_path / "junit.xml").mkdir()
    with pytest.raises(IsADirectoryError):
        write_files(real_report, tmp_path, MUST)
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("drawn")
@pytest.mark.parametrize("form", RENDERERS)
def test_a_form_that_cannot_be_rendered_hides_no_other(real_report, tmp_path, monkeypatch, capfd, form):
    def fail(*_):
        raise KeyError("a name")

    renderers = {**RENDERERS, form: fail}
    monkeypatch.setattr(files, "RENDERERS", renderers)
    with pytest.raises(KeyError):
        write_files(real_report, tmp_path, MUST)
    names = {"html": "report.html", "md": "report.md", "junit": "junit.xml"}
    assert {path.name for path in tmp_path.iterdir()} == {REPORT, *names.values()} - {names[form]}
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("suffix", "compress"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_report_is_read_from_its_folder_compressed_or_not(real_report, tmp_path, suffix, compress):
    text = "".join(f"{line}\n" for line in real_report.lines())
    (tmp_path / f"{REPORT}{suffix}").write_bytes(compress(text.encode("utf-8", "surrogatepass")))
    assert [*read_report_file(tmp_path).lines()] == [*real_report.lines()]


OTHER_FILES = {
    "": "an empty file",
    "\n": "an empty file",
    "<!doctype html>\n<p>report</p>\n": "a file that begins with '<!doctype html>'",
    '{"stats":{"tests":3}}\n': "JSON without the member `kind`",
}


@pytest.mark.parametrize("content", OTHER_FILES)
def test_a_file_that_is_no_report_is_named_as_what_it_is(tmp_path, content):
    """`report.html` and reports of other tools are given to `compare`."""
    (file := tmp_path / "other").write_text(content, "utf-8")
    with pytest.raises(InvalidReportError) as refused:
        read_report_file(file)
    expected = f"{file}: invalid report: expected the folder of a run or its report.jsonl, got {OTHER_FILES[content]}"
    assert str(refused.value) == expected
