import socket

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.report.model import make_report


def called(capsys, *words):
    """Exit code, standard output, standard error."""
    try:
        code = main(words)
    except SystemExit as refused:
        code = refused.code
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize("port", ["99999", "65536", "-1", "x", "1.5", "", "9" * 10_000], ids=lambda port: port[:10])
def test_what_is_no_port_is_refused_in_one_line(capsys, port):
    code, out, err = called(capsys, "serve", f"--port={port}")
    assert (code, out) == (2, "")
    assert "0 to 65535" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("host", ["\udc9b", "\0", "é" * 100, "a\nb"])
def test_what_is_no_host_is_refused_in_one_line(capsys, host):
    code, out, err = called(capsys, "serve", "--host", host, "--port", "0")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "cannot listen on" in err


@pytest.mark.parametrize("host", ["", " "])
def test_serve_does_not_listen_everywhere_for_an_empty_host(host, capsys):
    with pytest.raises(SystemExit) as refused:
        main(["serve", "--host", host, "--port", "0"])
    assert refused.value.code == 2
    assert f"argument --host: expected an address such as 127.0.0.1, got {host!r}" in capsys.readouterr().err


def test_a_port_that_is_taken_is_named_once(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = called(capsys, "serve", "--port", str(port))
    assert (code, err) == (2, f"harmony-conformance serve: cannot listen on 127.0.0.1:{port}: Address already in use\n")


@pytest.mark.parametrize("named", ["", "report.jsonl"], ids=["the folder", "the file in it"])
def test_a_report_is_drawn_again_from(capsys, tmp_path, named):
    report = make_report({"version": "1", "target": {"url_host": "host"}, "tries": 1}, ())
    (tmp_path / "report.jsonl").write_text("".join(f"{line}\n" for line in report.lines()), encoding="utf-8")
    code, out, err = called(capsys, "report", str(tmp_path / named), "--format", "md")
    assert (code, err) == (0, "")
    assert "host" in out


def test_a_report_that_is_not_there_is_reported_in_one_line(capsys, tmp_path):
    code, _, err = called(capsys, "report", str(tmp_path / "absent"))
    assert (code, err.count("\n")) == (2, 1)
    assert "no such file" in err


def test_a_report_that_is_no_text_is_reported_in_one_line(capsys, tmp_path):
    (file := tmp_path / "report.jsonl").write_bytes(b"\xc5")
    assert main(["report", str(file)]) == 2
    assert "report.jsonl: line 1: invalid UTF-8 at byte 0" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--json", "--evidence"])
def test_a_selftest_that_could_not_write_its_result_is_not_begun(capsys, tmp_path, option):
    assert main(["selftest", option, str(tmp_path)]) == 2
    assert f"{option} {tmp_path}: Is a directory" in capsys.readouterr().err


@pytest.mark.parametrize("tpot", ["x", "-1", "nan", "inf", "10001"])
def test_what_is_no_time_per_token_is_refused_in_one_line(capsys, tpot):
    code, out, err = called(capsys, "serve", f"--tpot={tpot}")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "milliseconds from 0 to 10000" in err
