#!/usr/bin/env bash
# Serves the teleprompter on 127.0.0.1:${PORT:-18430} in the foreground, under the model name gpt-oss-teleprompter. Further
# arguments go to `transformers serve`.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../../.engines/transformers"

export HF_HOME=$PWD/home HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 DO_NOT_TRACK=1
export OMP_NUM_THREADS=1 # more wait for each other: several times as slow on a machine that does something else too

# nothing bounds what a request may take: one of 140,000 tokens filled 14 GB and was not done. So bounded, it is refused memory, and answered with HTTP 500
ulimit -v "${MEMORY:-12000000}"

exec venv/bin/transformers serve gpt-oss-teleprompter --device cpu --host 127.0.0.1 --port "${PORT:-18430}" "$@"
