# One setup from start to end: set the server up, start it, run the suite against it, stop it. Sourced by run.sh of each setup.
# shellcheck shell=bash
# Needs: MAKE_TARGET, which messages begin with; HERE, the setup's folder; ROOT; PORT; LOG. ENGINE and MODEL, where they are not vLLM's; HEALTH, the path
# that answers when the server is up, where it is not `health`. Then: run_suite OUT ARGUMENTS of `run`.

PATIENCE=${PATIENCE:-300} # seconds of processor time until the server answers; 35 to 75 are usual, however busy the machine is
STILL=${STILL:-120}       # seconds in which a server that is starting may do nothing at all
server=

# shellcheck disable=SC2329 # the trap calls it
stop() {
  [[ -n $server ]] || return 0
  kill "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
  server=
}

give_up() {
  printf '%s: %s; the end of %s:\n' "$MAKE_TARGET" "$1" "$LOG" >&2
  tail -n 40 "$LOG" >&2
  exit 3
}

healthy() { curl --silent --fail --output /dev/null --max-time 5 "http://127.0.0.1:$PORT/${HEALTH:-health}"; }

# seconds of processor time of the server and of what it has started
spent() {
  ps -e -o pid=,ppid=,cputimes= | awk -v root="$server" '
    { parent[$1] = $2; seconds[$1] = $3 }
    END {
      for (pid in seconds) {
        for (one = pid; one in parent && one != root; ) one = parent[one]
        if (one == root) sum += seconds[pid]
      }
      print sum + 0
    }'
}

# start COMMAND...: the server, and wait until it answers. Other work on the machine makes that late and is no reason to give up: what counts is what it has done.
start() {
  local used=0 before=0
  "$@" > "$LOG" 2>&1 &
  server=$!
  SECONDS=0
  until healthy; do
    kill -0 "$server" 2>/dev/null || give_up "the server died"
    used=$(spent)
    [[ $used == "$before" ]] || SECONDS=0
    before=$used
    ((used < PATIENCE)) || give_up "the server was not up after $used s of processor time"
    ((SECONDS < STILL)) || give_up "the server was not up, and did nothing for $STILL s"
    sleep 1
  done
}

run_suite() {
  local out=$1 code=0
  shift
  cd "$ROOT"
  if healthy; then
    echo "$MAKE_TARGET: something already answers on port $PORT; stop it or set PORT" >&2
    exit 2
  fi
  "$HERE/setup.sh" || exit 3

  trap stop EXIT
  trap 'exit 130' INT TERM
  start "$HERE/serve.sh"
  .venv/bin/harmony-conformance run "${ENGINE:-vllm}:http://127.0.0.1:$PORT/v1" --model "${MODEL:-gpt-oss-tiny}" --out "$out" "$@" || code=$?
  stop
  gzip -9 --force --no-name "$out/exchanges.jsonl" "$out/report.jsonl" # both are read as they are
  rm -f "$out/junit.xml"
  exit "$code"
}
