#!/usr/bin/env bash
# Serves gpt-oss-tiny on 127.0.0.1:${PORT:-18400} in the foreground. Further arguments go to `vllm serve`. VLLM=0.11.0: that release.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$HERE/../../.engines/vllm${VLLM:+-$VLLM}"

export PYTHONPATH=$PWD/stub
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
export VLLM_SYSTEM_START_DATE=2025-06-28
export VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1
DTYPE=bfloat16
OPTIONS=(--enable-scale-out)
# shellcheck source=engines/vllm/0.11.0/settings.sh
[[ -z ${VLLM:-} ]] || source "$HERE/$VLLM/settings.sh"

exec venv/bin/vllm serve model --served-model-name gpt-oss-tiny --host 127.0.0.1 --port "${PORT:-18400}" \
  --load-format dummy --enforce-eager --dtype "$DTYPE" \
  --max-model-len 4096 --max-num-seqs 8 --max-num-batched-tokens 4096 \
  --enable-auto-tool-choice --tool-call-parser openai --reasoning-parser openai_gptoss \
  --enable-prompt-tokens-details ${OPTIONS[@]+"${OPTIONS[@]}"} \
  --logits-processors harmony_conformance.vllm_script:ScriptedLogits "$@"
