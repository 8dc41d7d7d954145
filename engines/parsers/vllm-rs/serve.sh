#!/usr/bin/env bash
# Serves vLLM's Rust front end before a scripted engine on 127.0.0.1:${PORT:-18580} in the foreground.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=engines/parsers/common.sh
source "$HERE/../common.sh"
enter vllm-rs
offline

export VLLM_SYSTEM_START_DATE=2025-06-28 VLLM_NO_USAGE_STATS=1
exec venv/bin/python "$HERE/serve.py" ./vllm-rs model gpt-oss-teleprompter "${PORT:-18580}"
