#!/usr/bin/env bash
# Serves LMDeploy before a scripted engine on 127.0.0.1:${PORT:-18590} in the foreground.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=engines/parsers/common.sh
source "$HERE/../common.sh"
enter lmdeploy
offline

exec venv/bin/python "$HERE/serve.py" model gpt-oss-teleprompter "${PORT:-18590}"
