#!/usr/bin/env bash
# The suite against a real Ollama: set it up, start it, run, stop it. Exits with the suite's code.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
export PORT=${PORT:-18450} OLLAMA=${OLLAMA:-0.34.4}
LOG=$ROOT/.engines/ollama/run.log
MAKE_TARGET=engine-ollama
ENGINE=ollama
MODEL=gpt-oss-teleprompter
# shellcheck disable=SC2034 # run_suite.sh reads it
HEALTH=api/version
# shellcheck source=engines/run_suite.sh
source "$HERE/../run_suite.sh"

# The llama.cpp of this setup writes the grammar of a schema in a notation that Ollama 0.34 cannot take (see README.md). Old releases have their own.
without_schemas=()
[[ $OLLAMA == 0.[12]?.* ]] || for scenario in answer_schema client_strings markers_in_the_request rows_structured rows_structured_otherwise structured_answer; do
  without_schemas+=(--skip "errors.valid_request_is_answered@$scenario")
done

run_suite "${OUT:-reports/ollama-$OLLAMA}" --engine "ollama $OLLAMA" --api all --script teleprompter --concurrency 4 --latency 0 "${without_schemas[@]}" "$@"
