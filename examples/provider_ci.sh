#!/usr/bin/env bash
# A provider's CI, from end to end: the deployed build has a known failure, the next build also has a regression.
#
#   examples/provider_ci.sh [OPTIONS OF run]
#
# Both builds are `harmony-conformance serve` with defects. The gate is the one command in `gate`.
# Exit code: 0 if the deployed build passes the gate and the next one does not. The runs are in $OUT (default: runs/provider-ci).
set -euo pipefail
out=${OUT:-runs/provider-ci}
known=effort-ignored regression=reasoning-not-passed-back
mkdir -p "$out"

serve() { # VARIABLE DEFECT…: start a server on a free port, and put its URL into the variable
  local fd defects=()
  for defect in "${@:2}"; do defects+=(--defect "$defect"); done
  exec {fd}< <(exec harmony-conformance serve --port 0 "${defects[@]}")
  servers+=($!)
  read -r "$1" <&"$fd"
}
servers=()
trap 'kill "${servers[@]}" 2> /dev/null || true' EXIT

gate() { # URL NAME OPTIONS…
  harmony-conformance run "$1" --baseline "$out/known.toml" --latency 0 --out "$out/$2" "${@:3}"
}

serve deployed "$known"
serve next "$known" "$regression"

echo "== once: the failures of the deployed build become the baseline"
harmony-conformance run "$deployed" --baseline-write "$out/known.toml" --latency 0 --quiet --out "$out/first" "$@" || true
sed -i.bak 's/TODO: .*"$/waits for the next release of the template"/' "$out/known.toml"
cat "$out/known.toml"

echo "== the deployed build: its failure is known, the gate is open"
gate "$deployed" deployed "$@"

echo "== the next build: the gate is shut, by one cause"
if gate "$next" next "$@"; then
  echo "the regression passed the gate" >&2
  exit 1
fi
harmony-conformance compare "$out/deployed" "$out/next" --format html > "$out/comparison.html" || true
echo "before and after on one page: $out/comparison.html"
