#!/usr/bin/env bash
# Serves the teleprompter behind gpt-oss's Responses server on 127.0.0.1:${PORT:-18440} in the foreground.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
cd "$ROOT/.engines/gpt-oss"
export PYTHONPATH=$ROOT/conformance:$ROOT/harmony_ref TIKTOKEN_ENCODINGS_BASE=$PWD/vocabulary
exec venv/bin/python "$HERE/serve.py" "${PORT:-18440}"
