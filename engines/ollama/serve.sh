#!/usr/bin/env bash
# Serves Ollama on 127.0.0.1:${PORT:-18450} in the foreground, with the model gpt-oss-teleprompter. Its models are in the setup's folder.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$HERE/../../.engines/ollama/${OLLAMA:-0.34.4}"
export OLLAMA_HOST=127.0.0.1:${PORT:-18450} OLLAMA_MODELS=$PWD/models HOME=$PWD
export OLLAMA_NO_CLOUD=1 OLLAMA_NOHISTORY=1 OLLAMA_NUM_PARALLEL=4 OLLAMA_CONTEXT_LENGTH=32768 OLLAMA_KEEP_ALIVE=-1
exec bin/ollama serve
