#!/usr/bin/env bash
# Serves SGLang before a scripted scheduler on 127.0.0.1:${PORT:-18560} in the foreground. Further arguments go to `sglang.launch_server`.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=engines/parsers/common.sh
source "$HERE/../common.sh"
enter sglang
offline

exec venv/bin/python "$HERE/serve.py" --model-path model --served-model-name gpt-oss-teleprompter --device cpu --host 127.0.0.1 --port "${PORT:-18560}" \
  --reasoning-parser gpt-oss --tool-call-parser gpt-oss --skip-server-warmup "$@"
