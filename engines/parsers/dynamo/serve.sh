#!/usr/bin/env bash
# Serves Dynamo's front end before a scripted worker on 127.0.0.1:${PORT:-18570} in the foreground. Further arguments go to `dynamo.frontend`.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=engines/parsers/common.sh
source "$HERE/../common.sh"
enter dynamo
offline

# both sides find each other by files, so neither etcd nor NATS is needed
export DYN_DISCOVERY_BACKEND=file DYN_FILE_KV=$PWD/discovery DYN_SELF_HOST_METADATA=0 DYN_TCP_RPC_HOST=127.0.0.1 HOME=$PWD/home
rm -rf discovery home
mkdir -p discovery home

venv/bin/python "$HERE/worker.py" model gpt-oss-teleprompter > worker.log 2>&1 &
worker=$!
venv/bin/python -m dynamo.frontend --http-host 127.0.0.1 --http-port "${PORT:-18570}" "$@" &
frontend=$!
trap 'kill "$worker" "$frontend" 2>/dev/null || true' EXIT
trap 'exit 0' INT TERM
wait -n
