#!/usr/bin/env bash
# Is a server ready for a coding agent? First a server that loses calls, then one without the defect.
#
#   examples/ready_for_client.sh [CLIENT]        codex, claude-code, opencode, openai-agents, langchain or vercel-ai
#
# Both servers are `harmony-conformance serve`. Replace their URLs by those of your server, before and after a change of its options.
# Exit code: 0 if the first server is not ready for the client, and the second one is. The runs are in $OUT (default: runs/ready).
set -euo pipefail
out=${OUT:-runs/ready} client=${1:-codex}

serve() { # VARIABLE OPTIONS…: start a server on a free port, and put its URL into the variable
  local fd
  exec {fd}< <(exec harmony-conformance serve --port 0 "${@:2}")
  servers+=($!)
  read -r "$1" <&"$fd"
}
servers=()
trap 'kill "${servers[@]}" 2> /dev/null || true' EXIT

serve before --defect calls-dropped
serve after

echo "== before"
if harmony-conformance run "$before" --client "$client" --out "$out/before"; then
  echo "a server that loses calls passed" >&2
  exit 1
fi
echo "== after"
harmony-conformance run "$after" --client "$client" --out "$out/after"
