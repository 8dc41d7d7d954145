"""Keys of the entries of a baseline, for runs and for audits."""

from __future__ import annotations

from harmony_conformance.runtime.file_keys import FileKey

ENTRY = "[[expected]]"
_PATTERN = "pattern"
_CAUSE = FileKey(
    table=ENTRY,
    name="cause",
    kind=_PATTERN,
    meaning="Id of a cause of the report. Without `cause`, an entry needs `check`.",
    example='cause = "vllm-header-forms"',
    default="every cause",
)
_CHECK = FileKey(
    table=ENTRY,
    name="check",
    kind=_PATTERN,
    meaning="Id of a check. Without `check`, an entry needs `cause`.",
    example='check = "streaming.*"',
    default="every check",
)
_SCENARIO = FileKey(
    table=ENTRY,
    name="scenario",
    kind=_PATTERN,
    meaning="Name of a scenario. Not for `audit`.",
    example='scenario = "rows_texts"',
    default="every scenario",
)
_MESSAGE = FileKey(
    table=ENTRY,
    name="message",
    kind=_PATTERN,
    meaning="Text of a failure. Only for `audit`.",
    example='message = "*<|channel|>*"',
    default="every failure",
)
_SOURCE_EXAMPLES = {
    "model": "gpt-oss-120b*",
    "provider": "example",
    "route": "/v1/chat/*",
    "engine": "vllm",
    "api": "chat",
}
SOURCES = tuple(_SOURCE_EXAMPLES)
"""Members of an entry with the source of the answers of a log."""
_SOURCE_KEYS = tuple(
    FileKey(
        table=ENTRY,
        name=name,
        kind=_PATTERN,
        meaning=f"The {'API' if name == 'api' else name} of the answers. Only for `audit`.",
        example=f'{name} = "{example}"',
        default=f"every {name}",
    )
    for name, example in _SOURCE_EXAMPLES.items()
)
_REASON = FileKey(
    table=ENTRY,
    name="reason",
    kind="text",
    meaning="Why the failure is accepted. A reason that begins with `TODO` is refused.",
    example='reason = "waits for the next release"',
    required=True,
)
_LINK = FileKey(
    table=ENTRY,
    name="link",
    kind="text",
    meaning="An issue or another page about the failure.",
    example='link = "https://github.com/vllm-project/vllm/issues/1"',
)
RUN_KEYS = (_CAUSE, _CHECK, _SCENARIO, _REASON, _LINK)
LOG_KEYS = (_CAUSE, _CHECK, _MESSAGE, *_SOURCE_KEYS, _REASON, _LINK)
KEYS = (_CAUSE, _CHECK, _SCENARIO, _MESSAGE, *_SOURCE_KEYS, _REASON, _LINK)
