#!/usr/bin/env bash
# Record what real clients send to the reference server, and write it to golden/scenarios. `run.sh codex` records one.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
"$HERE/setup.sh" || exit 3
cd "$ROOT"
exec .venv/bin/python "$HERE/record.py" "$@"
