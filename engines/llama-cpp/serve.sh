#!/usr/bin/env bash
# Serves the teleprompter on 127.0.0.1:${PORT:-18420} in the foreground, under the model name gpt-oss-teleprompter.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$HERE/../../.engines/llama-cpp"
exec "venv${BUILD:+-$BUILD}/bin/python" "$HERE/serve.py" model/teleprompter.gguf "${PORT:-18420}"
