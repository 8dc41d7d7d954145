# One lane from start to end: set the server up, start it, run the suite against it, stop it. Sourced by run.sh of each lane.
# shellcheck shell=bash
# Needs: LANE, the name that messages begin with; HERE, the lane's folder; ROOT; PORT; LOG. ENGINE and MODEL, where they are not vLLM's. Then: run_lane OUT ARGUMENTS of `run`.

PATIENCE=${PATIENCE:-300} # seconds; 35 to 75 on two cores
server=

# shellcheck disable=SC2329 # the trap calls it
stop() {
  [[ -n $server ]] || return 0
  kill "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
  server=
}

give_up() {
  printf '%s: %s; the end of %s:\n' "$LANE" "$1" "$LOG" >&2
  tail -n 40 "$LOG" >&2
  exit 3
}

healthy() { curl --silent --fail --output /dev/null --max-time 5 "http://127.0.0.1:$PORT/health"; }

run_lane() {
  local out=$1 code=0
  shift
  cd "$ROOT"
  if healthy; then
    echo "$LANE: something already answers on port $PORT; stop it or set PORT" >&2
    exit 2
  fi
  "$HERE/setup.sh" || exit 3

  trap stop EXIT
  trap 'exit 130' INT TERM
  "$HERE/serve.sh" > "$LOG" 2>&1 &
  server=$!
  SECONDS=0
  until healthy; do
    kill -0 "$server" 2>/dev/null || give_up "the server died"
    ((SECONDS < PATIENCE)) || give_up "the server was not up after $PATIENCE s"
    sleep 1
  done

  .venv/bin/harmony-conformance run "${ENGINE:-vllm}:http://127.0.0.1:$PORT/v1" --model "${MODEL:-gpt-oss-tiny}" --out "$out" "$@" || code=$?
  exit "$code"
}
