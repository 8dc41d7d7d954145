# What the setups of this folder share. Sourced by setup.sh and serve.sh of each engine.
# shellcheck shell=bash
# Needs: HERE, the engine's folder; for setup MAKE_TARGET, which messages begin with.

ROOT=$(cd "$HERE/../../.." && pwd)
# shellcheck source=engines/environment.sh
source "$ROOT/engines/environment.sh"
# shellcheck source=engines/template.sh
source "$ROOT/engines/template.sh"

# enter ENGINE: the folder of its environment
enter() {
  mkdir -p "$ROOT/.engines/parsers/$1"
  cd "$ROOT/.engines/parsers/$1"
}

# From here on, a step of setup that fails ends it.
skip_if_unavailable() {
  set -E
  trap unavailable ERR
  install_uv
}

# Not every machine can install every engine. One line says so; the exit code is the one of a setup without a server.
unavailable() {
  say "skipped: its packages cannot be installed here"
  exit 3
}

# What a front end reads of a gpt-oss model, into the folder `model`: tokenizer, chat template, configuration. No weights.
install_model() {
  install_tokenizer
  HERE=$ROOT/engines/parsers install_template
  cp "$TEMPLATE" model/chat_template.jinja
  cp "$ROOT/engines/vllm/checkpoint/config.json" "$ROOT/engines/vllm/checkpoint/generation_config.json" model/
}

# openai-harmony looks for its vocabulary there, and fetches none
install_vocabulary() {
  [[ -f vocabulary/o200k_base.tiktoken ]] && return
  mkdir -p vocabulary
  "$ROOT/.venv/bin/python" "$ROOT/engines/gpt-oss/vocabulary.py" > vocabulary/new
  mv vocabulary/new vocabulary/o200k_base.tiktoken
}

# The environment of a server that asks no network for anything. The scripted engines take the project's own code from its folders.
offline() {
  export PYTHONPATH=$ROOT/harmony_ref:$ROOT/conformance:$ROOT/engines/parsers TIKTOKEN_ENCODINGS_BASE=$PWD/vocabulary
  export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 DO_NOT_TRACK=1 PYTHONWARNINGS=ignore
}
