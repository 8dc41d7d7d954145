"""Reference server: a gpt-oss server without errors, or, on demand, with known defects.

    with running() as url: ...                       # a server in a thread
    with running(defects=["usage-all-zero"]) as url: ...
    app = create_app()                               # the same as an ASGI application

A request can script the model's output: `harmony_script` is a list of token ids or a text with special tokens.
The time per token in seconds is `harmony_token_delay`. A script with `harmony_script_then: "model"` ends at a
`<|message|>`, and the model completes the answer.
"""

from harmony_conformance.reference_server.defects import DEFECTS, SURFACE_DEFECTS
from harmony_conformance.reference_server.defects.stages import Defect
from harmony_conformance.reference_server.requests.fields import MODEL
from harmony_conformance.reference_server.server.app import create_app
from harmony_conformance.reference_server.server.serving import running, serve

__all__ = ["DEFECTS", "MODEL", "SURFACE_DEFECTS", "Defect", "create_app", "running", "serve"]
