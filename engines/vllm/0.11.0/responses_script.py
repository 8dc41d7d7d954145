"""Pass `vllm_xargs` of a request to /v1/responses to the sampler, as later releases of vLLM do.

This is a plugin of vLLM (`vllm.general_plugins`). Without it, that API cannot carry a script. Requests retain unknown members.
"""

from vllm.entrypoints.openai.protocol import ResponsesRequest
from vllm.sampling_params import SamplingParams

_MADE = ResponsesRequest.to_sampling_params


def _to_sampling_params(
    self: ResponsesRequest, default_max_tokens: int, default_sampling_params: dict[str, object] | None = None
) -> SamplingParams:
    params = _MADE(self, default_max_tokens, default_sampling_params)
    params.extra_args = (self.model_extra or {}).get("vllm_xargs")
    return params


def install() -> None:
    """Install the patch. vLLM calls this in each of its processes, in some of them twice."""
    ResponsesRequest.to_sampling_params = _to_sampling_params
