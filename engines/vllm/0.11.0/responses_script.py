"""What vLLM gained later: `vllm_xargs` of a request to /v1/responses reach the sampler, as those of Chat Completions do.

A plugin of vLLM's own kind (`vllm.general_plugins`): without it nothing says over that API what the model is to write. A request keeps members that it
does not know.
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
    """Called by vLLM in each of its processes, in some of them twice."""
    ResponsesRequest.to_sampling_params = _to_sampling_params
