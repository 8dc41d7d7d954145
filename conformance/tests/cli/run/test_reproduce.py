"""`harmony-conformance reproduce RUN ID`, on runs against the embedded reference server."""

import gzip
import json
import shlex

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.errors import Exit
from harmony_ref import decode

DEFECTS = "reference:defect=finished-reasoning-kept,stream-without-done"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    selected = ["--select", "finished_turn", "--select", "simple_answer"]
    assert main(["run", DEFECTS, *selected, "--latency", "0", "--out", str(folder)]) == Exit.DIVERGES
    return folder


@pytest.mark.parametrize(
    "name", ["finished-reasoning-kept", "streaming.ends_with_done", "streaming.ends_with_done@simple_answer"]
)
def test_a_cause_or_a_check_still_happens_on_the_same_server(run, name, capsys):
    assert main(["reproduce", str(run), name]) == Exit.DIVERGES
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("still happens: ")


def test_every_result_of_a_cause_is_repeated(run, capsys):
    assert main(["reproduce", str(run), "stream-without-done", "--all"]) == Exit.DIVERGES
    *lines, counted = capsys.readouterr().out.splitlines()
    assert counted == "2 of 2 failures still happen"
    assert sorted(line.split(":")[1].split(" in ")[1] for line in lines) == ["finished_turn", "simple_answer"]


def test_a_check_that_compares_apis_is_repeated_over_all_apis(tmp_path, capsys):
    target, name = "reference:defect=responses-completed-when-cut", "apis.same_end@cut_in_answer"
    selected = ["--api", "all", "--select", name]
    assert main(["run", target, *selected, "--latency", "0", "--out", str(tmp_path)]) == Exit.DIVERGES
    capsys.readouterr()
    assert main(["reproduce", str(tmp_path), name]) == Exit.DIVERGES
    assert capsys.readouterr().out.startswith("still happens: apis.same_end in cut_in_answer")


def test_it_no_longer_happens_on_the_correct_server(run, capsys):
    assert main(["reproduce", str(run), "finished-reasoning-kept", "--against", "reference"]) == Exit.CONFORMS
    assert capsys.readouterr().out.startswith("no longer happens: ")


def test_an_empty_target_is_not_that_of_the_run(run, capsys):
    """An unset variable of a CI job."""
    assert main(["reproduce", str(run), "finished-reasoning-kept", "--against", ""]) == Exit.USAGE
    assert "invalid target ''" in capsys.readouterr().err


def test_a_request_that_the_suite_sends_no_more_is_named(run, tmp_path, capsys):
    note = "now with another request than the recorded one, which the command of the report sends"
    name = "streaming.ends_with_done@simple_answer"
    assert main(["reproduce", str(run), name, "--against", "reference"]) == Exit.CONFORMS
    assert note not in capsys.readouterr().err
    for file in ("exchanges.jsonl", "report.jsonl"):
        (tmp_path / file).write_bytes((run / file).read_bytes())
    lines = [json.loads(line) for line in (run / "exchanges.jsonl").read_text("utf-8").splitlines()]
    for line in lines:
        if line["kind"] == "exchange" and line["scenario"] == "simple_answer":
            line["request"]["json"]["messages"][-1]["content"] = "An earlier release of the suite asked this."
    (tmp_path / "exchanges.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    assert main(["reproduce", str(tmp_path), name, "--against", "reference"]) == Exit.CONFORMS
    printed = capsys.readouterr()
    assert printed.out == "no longer happens: streaming.ends_with_done in simple_answer: pass\n"
    assert f"{note}: streaming.ends_with_done@simple_answer" in printed.err


def test_another_failure_of_the_check_is_reported_as_such(run, tmp_path, capsys):
    for file in ("exchanges.jsonl", "report.jsonl"):
        text = (run / file).read_text("utf-8").replace("the stream ends without [DONE]", "the stream has two ends")
        (tmp_path / file).write_text(text, "utf-8")
    assert main(["reproduce", str(tmp_path), "stream-without-done"]) == Exit.DIVERGES
    line = capsys.readouterr().out
    assert line == "fails in another way: streaming.ends_with_done in finished_turn: the stream ends without [DONE]\n"


@pytest.mark.parametrize("is_compressed", [False, True], ids=["plain", "gzip"])
def test_the_folder_of_a_run_is_judged_again(run, tmp_path, is_compressed, capsys):
    content = (run / "exchanges.jsonl").read_bytes()
    name = "exchanges.jsonl.gz" if is_compressed else "exchanges.jsonl"
    (tmp_path / name).write_bytes(gzip.compress(content) if is_compressed else content)
    selected = ["--select", "finished_turn", "--select", "simple_answer"]
    assert main(["run", f"replay:{tmp_path}", *selected, "--out", str(tmp_path / "again"), "-q"]) == Exit.DIVERGES
    assert "causes: 2" in capsys.readouterr().out


INVALID = {
    "an unknown id": (["nothing"], "expected a cause (finished-reasoning-kept, stream-without-done) or a failed check"),
    "a misspelt cause": (["stream-witout-done"], "got 'stream-witout-done'; did you mean stream-without-done?"),
    "a check that passed": (["errors.answer_is_well_formed"], "expected a cause"),
    "a server that is not there": (["stream-without-done", "--against", "openai:http://127.0.0.1:9/v1"], "refused"),
}


@pytest.mark.parametrize("what", INVALID)
def test_invalid_arguments_are_one_line(what, run, capsys):
    arguments, message = INVALID[what]
    assert main(["reproduce", str(run), *arguments]) == Exit.USAGE
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_a_recording_without_its_target_needs_one(run, tmp_path, capsys):
    header, rest = (run / "report.jsonl").read_text("utf-8").split("\n", 1)
    known = {name: value for name, value in json.loads(header).items() if name != "options"}
    (tmp_path / "report.jsonl").write_text(f"{json.dumps(known)}\n{rest}", "utf-8")
    assert main(["reproduce", str(tmp_path), "stream-without-done"]) == Exit.USAGE
    assert "expected --against TARGET" in capsys.readouterr().err
    assert main(["reproduce", str(tmp_path / "none"), "stream-without-done"]) == Exit.USAGE
    assert "no such file" in capsys.readouterr().err


def test_a_packed_recording_is_judged_and_reproduced_as_it_is(run, tmp_path, capsys):
    for file in ("exchanges.jsonl", "report.jsonl"):
        (tmp_path / f"{file}.gz").write_bytes(gzip.compress((run / file).read_bytes()))
    again = tmp_path / "again"
    code = main(["run", f"replay:{tmp_path / 'exchanges.jsonl.gz'}", "--engine", "vllm 0.0", "--out", str(again)])
    assert code == Exit.DIVERGES
    header, *lines = map(json.loads, (again / "report.jsonl").read_text("utf-8").splitlines())
    assert (header["target"]["engine"], header["target"]["engine_version"]) == ("vllm", "0.0")
    assert {line["id"] for line in lines if line["kind"] == "cause"} == {
        "finished-reasoning-kept",
        "stream-without-done",
    }
    capsys.readouterr()
    assert main(["reproduce", str(tmp_path), "stream-without-done"]) == Exit.DIVERGES
    assert capsys.readouterr().out.startswith("still happens: ")


def test_commands_of_a_recording_name_its_target_unless_another_is_given(run, tmp_path):
    def commands(*options):
        out = tmp_path / str(len(options))
        main(["run", f"replay:{run / 'exchanges.jsonl'}", *options, "--out", str(out)])
        lines = map(json.loads, (out / "report.jsonl").read_text("utf-8").splitlines())
        return [line["reproduce"] for line in lines if line.get("outcome") == "fail"]

    assert all(command.startswith("harmony-conformance run reference:defect=") for command in commands())
    named = commands("--recorded-target", "vllm:http://host:8000/v1")
    assert all("http://host:8000/v1/chat/completions" in command for command in named)


def test_an_invalid_recorded_target_is_one_line(run, tmp_path, capsys):
    arguments = ["run", f"replay:{run / 'exchanges.jsonl'}", "--recorded-target", "vllm:", "--out", str(tmp_path)]
    assert main(arguments) == Exit.USAGE
    assert "invalid target 'vllm:'" in capsys.readouterr().err


def test_without_an_id_the_example_of_every_cause_is_repeated(run, capsys):
    assert main(["reproduce", str(run)]) == Exit.DIVERGES
    *lines, counted = capsys.readouterr().out.splitlines()
    assert all(line.startswith("still happens: ") for line in lines)
    assert (len(lines), counted) == (2, "2 of 2 failures still happen")


def test_options_of_the_run_are_passed_on(run, capsys):
    options = "--run-options=--skip finished_turn --max-time 60"
    assert main(["reproduce", str(run), "stream-without-done", "--all", options]) == Exit.DIVERGES
    assert "not judged: streaming.ends_with_done in finished_turn: the scenario was not run" in capsys.readouterr().out


def changed(run, tmp_path, *, recording=True, **values):
    """Return the folder of a copy of a run with other options, in the recording or only in the report."""
    for file in ("exchanges.jsonl", "report.jsonl"):
        first, rest = (run / file).read_text("utf-8").split("\n", 1)
        line = json.loads(first)
        if line["kind"] == "run" and not recording:
            del line["options"]
        else:
            line["options"] = {**line["options"], **values}
        (tmp_path / file).write_text(f"{json.dumps(line)}\n{rest}", "utf-8")
    return tmp_path


@pytest.mark.parametrize("recording", [True, False])
def test_the_options_of_the_recording_are_used_and_named(run, tmp_path, capsys, recording):
    values = {"model": "gpt-oss-reference", "seed": 7, "extra-body": {"top_k": 1}}
    folder = changed(run, tmp_path, recording=recording, **values)
    for against in ([], ["--against", "reference:defect=stream-without-done"]):
        assert main(["reproduce", str(folder), "stream-without-done", *against]) == Exit.DIVERGES
        used = "--model gpt-oss-reference --seed 7 --extra-body '{\"top_k\":1}'"
        assert f"options of the recording, which --run-options can replace: {used}\n" in capsys.readouterr().err


def test_an_option_that_the_user_gives_replaces_that_of_the_recording(run, tmp_path, capsys):
    folder = changed(run, tmp_path, model="none")
    assert main(["reproduce", str(folder), "stream-without-done"]) == Exit.USAGE
    assert "invalid model or path" in capsys.readouterr().err
    for option in ("--model gpt-oss-reference", "--model=gpt-oss-reference"):
        assert main(["reproduce", str(folder), "stream-without-done", f"--run-options={option}"]) == Exit.DIVERGES
        assert "--model" not in capsys.readouterr().err


def test_options_of_one_engine_are_not_used_for_another(run, tmp_path, capsys):
    values = {"target": "vllm:http://127.0.0.1:9/v1", "model": "m", "script": "vllm", "seed": 7}
    folder = changed(run, tmp_path, **values)
    assert main(["reproduce", str(folder), "stream-without-done", "--against", "reference"]) == Exit.CONFORMS
    error = capsys.readouterr().err
    assert "not used, as reference is not vllm (--run-options gives them): --model m --script vllm\n" in error
    assert "can replace: --seed 7\n" in error


def test_the_value_of_a_recorded_header_is_asked_for(run, tmp_path, capsys):
    folder = changed(run, tmp_path, header=["x-team"])
    assert main(["reproduce", str(folder), "stream-without-done"]) == Exit.DIVERGES
    assert "the run sent the header x-team, whose value is not recorded" in capsys.readouterr().err
    options = "--run-options=--header 'X-Team: red'"
    assert main(["reproduce", str(folder), "stream-without-done", options]) == Exit.DIVERGES
    assert "x-team" not in capsys.readouterr().err


def test_a_cause_that_depends_on_timing_says_so(run, tmp_path, capsys):
    (tmp_path / "exchanges.jsonl").write_bytes((run / "exchanges.jsonl").read_bytes())
    text = (run / "report.jsonl").read_text("utf-8")
    named = '"id":"stream-without-done",'
    (tmp_path / "report.jsonl").write_text(text.replace(named, f'{named}"timing":"Now and then.",'), "utf-8")
    assert main(["reproduce", str(tmp_path), "stream-without-done", "--against", "reference"]) == Exit.CONFORMS
    assert "stream-without-done: Now and then.\n" in capsys.readouterr().err


def test_the_file_of_a_recording_is_no_option_of_its_report(run, tmp_path):
    text = (run / "exchanges.jsonl").read_text("utf-8").partition("\n")[2]
    (tmp_path / "old.jsonl").write_text(text, "utf-8")
    main(["run", f"replay:{tmp_path / 'old.jsonl'}", "--model", "m", "--out", str(tmp_path)])
    header = json.loads((tmp_path / "report.jsonl").read_text("utf-8").partition("\n")[0])
    assert header["options"]["model"] == "m"
    assert "target" not in header["options"]


def test_the_example_of_a_cause_has_the_command_and_the_script_of_its_own_exchange(run):
    lines = [json.loads(line) for line in (run / "report.jsonl").read_text("utf-8").splitlines()]
    (example,) = [line["example"] for line in lines if line.get("id") == "stream-without-done"]
    recorded = {
        line["id"]: line
        for line in map(json.loads, (run / "exchanges.jsonl").read_text("utf-8").splitlines())
        if line["kind"] == "exchange"
    }
    assert example["script"] == decode(recorded[example["exchange"]]["script"])
    assert example["scenario"] in example["reproduce"]


def test_a_recorded_header_cannot_leave_the_command_that_is_suggested(run, tmp_path, capsys):
    header = "x'\"; touch pwned $(touch pwned)"
    folder = changed(run, tmp_path, header=[header])
    main(["reproduce", str(folder), "stream-without-done"])
    (note,) = (line for line in capsys.readouterr().err.splitlines() if "is not recorded: " in line)
    (option,) = shlex.split(note.partition("is not recorded: ")[2])
    assert shlex.split(option.removeprefix("--run-options=")) == ["--header", f"{header}: VALUE"]


def test_a_cause_whose_example_names_nothing_is_repeated(run, tmp_path, capsys):
    lines = [json.loads(line) for line in (run / "report.jsonl").read_text("utf-8").splitlines()]
    causes = [line for line in lines if line["kind"] == "cause"]
    for cause in causes:
        cause["example"] = {}
    (tmp_path / "report.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    (tmp_path / "exchanges.jsonl").write_bytes((run / "exchanges.jsonl").read_bytes())
    assert main(["reproduce", str(tmp_path), causes[0]["id"]]) == Exit.DIVERGES
    assert capsys.readouterr().out.startswith("still happens: ")
