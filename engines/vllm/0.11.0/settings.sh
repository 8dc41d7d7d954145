# How vLLM 0.11.0 is served otherwise than the newest; sourced by serve.sh, in the folder of its environment.
# shellcheck shell=bash disable=SC2034
export TIKTOKEN_ENCODINGS_BASE=$PWD/vocabulary # openai-harmony would fetch its vocabulary
export VLLM_CPU_OMP_THREADS_BIND=0-1           # it knows no `nobind`
export VLLM_ENABLE_RESPONSES_API_STORE=1       # so that what it stores is looked at too
DTYPE=float32                                  # its grammars take no other logits on a CPU: the engine dies
OPTIONS=()                                     # it has no --enable-scale-out
