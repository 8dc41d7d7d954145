#!/usr/bin/env bash
# Builds .engines/transformers from nothing: the server of transformers on a CPU, gpt-oss's tokenizer and chat template, the
# teleprompter. Runs again in seconds: what is there and right stays.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
HOME_OF_TRANSFORMERS=$ROOT/.engines/transformers
MAKE_TARGET=engine-transformers
# shellcheck source=engines/environment.sh
source "$HERE/../environment.sh"
# shellcheck source=engines/template.sh
source "$HERE/../template.sh"

# Made again when its sources have changed. The server knows a model by its folder.
install_model() {
  local made_of
  made_of=$(cat "$ROOT"/conformance/harmony_conformance/engines/teleprompter/*.py "$TEMPLATE" model/tokenizer.json | sha256sum)
  if [[ -f gpt-oss-teleprompter/made_of && $(<gpt-oss-teleprompter/made_of) == "$made_of" ]]; then return; fi
  say "teleprompter (52 MB)"
  rm -rf gpt-oss-teleprompter
  "$ROOT/.venv/bin/harmony-conformance" teleprompter build gpt-oss-teleprompter --format safetensors >&2
  cp model/tokenizer.json model/tokenizer_config.json gpt-oss-teleprompter/
  cp "$TEMPLATE" gpt-oss-teleprompter/chat_template.jinja
  echo "$made_of" > gpt-oss-teleprompter/made_of
}

mkdir -p "$HOME_OF_TRANSFORMERS"
cd "$HOME_OF_TRANSFORMERS"
install_uv
install_locked "$HERE" "transformers and torch (5 GB on disk with the torch of PyPI; minutes with an empty cache)"
install_tokenizer
install_template
install_model
mkdir -p home/hub # where /v1/models looks for models: without it, HTTP 500
say "ready: engines/transformers/serve.sh"
