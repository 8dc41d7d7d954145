"""transformers' own answers to the inputs of `template` and `response_schema` vectors.

As a script it is a worker: a line `{"kind", "input"}` in, a line of answer out, so that a second environment can hold the
last transformers that knows response schemas (5.14.1).
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

SCHEMA_PYTHON = "HARMONY_TRANSFORMERS_PYTHON"
"""Names the interpreter of an environment with transformers 5.14.1 and jmespath."""

SCHEMA_PROBLEMS = (
    (TypeError, "non-string input, but has a regex", "not text"),
    (TypeError, "expected string or bytes-like object", "not text"),
    (TypeError, "parser but got non-string input", "not text"),
    (TypeError, "cannot use x-regex-iterator", "iterator outside an array"),
    (TypeError, "cannot use x-regex-key-value", "key-value outside an object"),
    (TypeError, "Expected a dict or str for schema node with type object", "not an object"),
    (TypeError, "Expected a list or regex", "not an array"),
    (TypeError, "Expected a string or int for", "not an integer"),
    (TypeError, "Expected a string or number for", "not a number"),
    (TypeError, "Expected a string or bool for", "not a boolean"),
    (TypeError, "Expected a string for", "not a string"),
    (TypeError, "Unsupported schema type", "unknown type"),
    (TypeError, "first argument must be string or compiled pattern", "not a rule"),
    (IndexError, "unknown group name", "bad replacement"),
    (IndexError, "index out of range", "not a rule"),
    (ValueError, "Regex has multiple unnamed groups", "several groups"),
    (ValueError, "Regex has no capture groups", "no group"),
    (ValueError, "must have named groups 'key' and 'value'", "no groups key and value"),
    (ValueError, "could not parse its contents as JSON", "not JSON"),
    (ValueError, "Exceeds the limit", "not JSON"),
    (ValueError, "Unknown parser", "unknown parser"),
    (ValueError, "Object node received string content", "no properties"),
    (ValueError, "Required fields", "missing"),
    (ValueError, "prefixItems defined", "wrong length"),
    (ValueError, "has no items or prefixItems", "no items"),
    (ValueError, "not a valid integer", "not an integer"),
    (ValueError, "not a valid number", "not a number"),
    (ValueError, "Invalid boolean value", "not a boolean"),
    (RecursionError, "", "too deep"),
    ((TypeError, AttributeError), "", "not a rule"),
)
TEMPLATE_FILE = "<template>"


def response_schema_answer(given):
    import jmespath.exceptions
    from transformers.utils.chat_parsing_utils import recursive_parse

    try:
        return {"value": recursive_parse(given["response"], given["schema"])}
    except re.error as error:
        kind = "bad replacement" if "group reference" in str(error) or "escape" in str(error) else "bad pattern"
        return {"error": {"kind": kind}}
    except jmespath.exceptions.JMESPathError:
        return {"error": {"kind": "bad transform"}}
    except Exception as error:  # noqa: BLE001 - its class is the answer
        for kind, text, problem in SCHEMA_PROBLEMS:
            if isinstance(error, kind) and text in str(error):
                return {"error": {"kind": problem}}
        return {"error": {"kind": f"{type(error).__name__}: {error}"}}


class Tokenizer:
    """A tokenizer that has no model but this: every character is a token."""

    def __init__(self):
        from tokenizers import Regex, Tokenizer, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast

        core = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
        core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
        self.tokenizer = PreTrainedTokenizerFast(tokenizer_object=core)

    def apply(self, given, **options):
        self.tokenizer.init_kwargs = {}
        return self.tokenizer.apply_chat_template(
            given["messages"],
            tools=given.get("tools"),
            documents=given.get("documents"),
            chat_template=given["template"],
            add_generation_prompt=given.get("add_generation_prompt", False),
            **options,
            **{**given.get("special_tokens", {}), **given.get("variables", {})},
        )


def template_answer(given, tokenizer):
    import jinja2
    from transformers.utils import chat_template_utils

    texts = given.get("now", {})

    class Clock:
        @staticmethod
        def now():
            return Clock

        @staticmethod
        def strftime(form):
            return texts[form]

    chat_template_utils.datetime = Clock
    chat_template_utils._compile_jinja_template.cache_clear()
    continued = given.get("continue_final_message", False)
    try:
        answer = {"text": tokenizer.apply(given, tokenize=False, continue_final_message=continued)}
        if not continued and "generation" in given["template"]:
            spans = _generation_spans(given, chat_template_utils)
            if spans:
                answer["generation_spans"] = spans
    except Exception as error:  # noqa: BLE001 - its class is the answer
        return {"error": _template_error(error, jinja2)}
    else:
        return answer


def _template_error(error, jinja2):
    line = _line(error.__traceback__)
    where = {} if line is None else {"line": line}
    if isinstance(error, jinja2.TemplateSyntaxError):
        return {"kind": "syntax", "text": error.message, "line": error.lineno}
    if isinstance(error, jinja2.exceptions.SecurityError):
        return {"kind": "security", **where}
    if isinstance(error, jinja2.UndefinedError):
        return {"kind": "undefined", "text": str(error), **where}
    if type(error) is jinja2.TemplateError:
        return {"kind": "raised", "text": str(error), **where}
    if line is None and isinstance(error, (TypeError, ValueError, AttributeError)):
        return {"kind": "input"}
    return {"kind": "failed", "text": type(error).__name__, **where}


def _generation_spans(given, chat_template_utils):
    messages = [{name: value for name, value in message.items() if value is not None} for message in given["messages"]]
    _, spans = chat_template_utils.render_jinja_template(
        [messages],
        tools=given.get("tools"),
        documents=given.get("documents"),
        chat_template=given["template"],
        return_assistant_tokens_mask=True,
        add_generation_prompt=given.get("add_generation_prompt", False),
        **{**given.get("special_tokens", {}), **given.get("variables", {})},
    )
    return [list(span) for span in spans[0]]


def generation_mask(given, tokenizer):
    """One number for each character of the text: 1 where the assistant generated it."""
    encoded = tokenizer.apply(given, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
    return {"mask": encoded["assistant_masks"]}


def strftime_answer(given, tokenizer):
    """With the real clock: the text, and the dates before and after."""
    from transformers.utils import chat_template_utils

    chat_template_utils.datetime = datetime
    chat_template_utils._compile_jinja_template.cache_clear()
    before = datetime.now(UTC).astimezone().date()
    text = tokenizer.apply(given, tokenize=False)
    after = datetime.now(UTC).astimezone().date()
    return {"text": text, "dates": [before.isoformat(), after.isoformat()]}


def _line(traceback):
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == TEMPLATE_FILE:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


class Worker:
    """The script in an interpreter of its own."""

    def __init__(self, python):
        environment = {**os.environ, "TRANSFORMERS_VERBOSITY": "critical", "HF_HUB_OFFLINE": "1"}
        self.process = subprocess.Popen(
            [python, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.version = json.loads(self.process.stdout.readline())["version"]

    def answer(self, kind, given):
        self.process.stdin.write(json.dumps({"kind": kind, "input": given}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def schema_python():
    """The interpreter that answers for response schemas; None where there is none."""
    if named := os.environ.get(SCHEMA_PYTHON):
        return named
    here = importlib.util.find_spec("transformers")
    known = here is not None and Path(here.origin).with_name("utils").joinpath("chat_parsing_utils.py").exists()
    return sys.executable if known else None


def main():
    import transformers

    tokenizer = Tokenizer()
    kinds = {
        "template": lambda given: template_answer(given, tokenizer),
        "mask": lambda given: generation_mask(given, tokenizer),
        "strftime": lambda given: strftime_answer(given, tokenizer),
        "response_schema": response_schema_answer,
    }
    print(json.dumps({"version": transformers.__version__}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(kinds[asked["kind"]](asked["input"])), flush=True)


if __name__ == "__main__":
    main()
