#!/usr/bin/env bash
# What a change of a server breaks and mends, in causes: both builds are judged, then compared.
#
#   examples/compare_servers.sh URL_OF_BASE URL_OF_HEAD [OPTIONS OF run]
#
# Both servers must be running. The runs are in $OUT/base and $OUT/head (default: a new folder below runs/).
# Exit code: that of `compare`, 1 for new failures; 2 or more if a run was incomplete.
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: $0 URL_OF_BASE URL_OF_HEAD [OPTIONS OF run]" >&2; exit 2; }
base=$1 head=$2
shift 2
out=${OUT:-runs/compare-$(date +%Y%m%d-%H%M%S)}
judge() { # SIDE URL OPTIONS…: a run; failures are no error here
  local side=$1 code=0
  harmony-conformance run "$2" "${@:3}" --quiet --out "$out/$side" || code=$?
  [ "$code" -le 1 ] || exit "$code"
}
GITHUB_ACTIONS=false judge base "$base" "$@" # the annotations of a pull request are those of head
judge head "$head" "$@"
harmony-conformance compare "$out/base" "$out/head"
