#!/usr/bin/env bash
# The suite against a real `transformers serve`: set it up, start it, run, stop it. Exits with the suite's code.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
export PORT=${PORT:-18430}
LOG=$ROOT/.engines/transformers/run.log
MAKE_TARGET=engine-transformers
ENGINE=transformers
MODEL=gpt-oss-teleprompter
# shellcheck source=engines/run_suite.sh
source "$HERE/../run_suite.sh"

run_suite "${OUT:-reports/transformers-5.23.0}" --engine 'transformers 5.23.0' --script teleprompter --concurrency 2 --timeout 900 --latency 0 \
  --skip 'rows_*' --skip long_requests "$@"
