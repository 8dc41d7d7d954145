#!/usr/bin/env bash
# A buyer of tokens: three endpoints of the same model on one page. One is right, one damages answers, one is slow.
#
#   examples/three_endpoints.sh [OPTIONS OF run]
#
# The endpoints are `harmony-conformance serve`. The comparison is the one command at the end.
# Exit code: that of `run-all`, 1 because one does not conform. The page is $OUT/matrix.html (default: runs/three-endpoints).
set -euo pipefail
out=${OUT:-runs/three-endpoints}
mkdir -p "$out"

serve() { # VARIABLE OPTION…: start a server on a free port, and put its URL into the variable
  local fd
  exec {fd}< <(exec harmony-conformance serve --port 0 "${@:2}")
  servers+=($!)
  read -r "$1" <&"$fd"
}
servers=()
trap 'kill "${servers[@]}" 2> /dev/null || true' EXIT

serve right
serve broken --defect output-unparsed
serve slow --tpot 100

options='"--latency", "0"'
for word in "$@"; do options+=", \"$word\""; done
cat > "$out/harmony-conformance.toml" <<TOML
options = [$options]
load = ["--rate", "20", "--requests", "${REQUESTS:-80}", "--output-tokens", "16", "--slo", "e2e_p95=1s"]

[[endpoint]]
name = "right"
target = "$right"

[[endpoint]]
name = "broken"
target = "$broken"

[[endpoint]]
name = "slow"
target = "$slow"
TOML
harmony-conformance run-all "$out/harmony-conformance.toml" --jobs 3 --out "$out"
