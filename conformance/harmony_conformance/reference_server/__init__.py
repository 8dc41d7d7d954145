"""The reference provider: what a gpt-oss server is that makes no mistake, and, on demand, one that makes a known one.

    with running() as url: ...                       # a server in a thread
    with running(defects=["usage-all-zero"]) as url: ...
    app = create_app()                               # the same as an ASGI application

A request may say what the model is to produce: `harmony_script` is a list of token ids or a text with special tokens,
`harmony_token_delay` the seconds that each token takes. With `harmony_script_then: "model"` the script, up to a `<|message|>`, begins
an answer that the model ends in its own words.
"""

from harmony_conformance.reference_server.defects import DEFECTS, SURFACE_DEFECTS
from harmony_conformance.reference_server.defects.stages import Defect
from harmony_conformance.reference_server.requests.fields import MODEL
from harmony_conformance.reference_server.server.app import create_app
from harmony_conformance.reference_server.server.serving import running, serve

__all__ = ["DEFECTS", "MODEL", "SURFACE_DEFECTS", "Defect", "create_app", "running", "serve"]
