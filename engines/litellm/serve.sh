#!/usr/bin/env bash
# Serves LiteLLM before the reference server on 127.0.0.1:${PORT:-18460} in the foreground. BEHIND is the API by which LiteLLM calls it:
# chat (default), responses or messages.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec "$HERE/../../.venv/bin/python" "$HERE/serve.py" --port "${PORT:-18460}" --behind "${BEHIND:-chat}"
