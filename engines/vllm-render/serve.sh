#!/usr/bin/env bash
# Serves rendering and derendering for gpt-oss-tiny on 127.0.0.1:${PORT:-18402} in the foreground. Further arguments go to
# `vllm launch render`.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../../.engines/vllm-render"

export VLLM_TARGET_DEVICE=cpu
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
export VLLM_SYSTEM_START_DATE=2025-06-28
export VLLM_HTTP_TIMEOUT_KEEP_ALIVE=120 # a busy machine must not look like a server that resets connections

exec venv/bin/vllm launch render model --served-model-name gpt-oss-tiny --host 127.0.0.1 --port "${PORT:-18402}" \
  --max-model-len 4096 --enable-auto-tool-choice --tool-call-parser openai --reasoning-parser openai_gptoss "$@"
