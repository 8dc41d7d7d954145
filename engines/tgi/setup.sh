#!/usr/bin/env bash
# Builds .engines/tgi from nothing: the shard's environment, gpt-oss's tokenizer with the published chat template, and TGI's router, if TGI_SOURCE
# names its sources and TGI_ROUTER no binary. Runs again in seconds: what is there and right stays.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
MAKE_TARGET=engine-tgi
# shellcheck source=engines/environment.sh
source "$HERE/../environment.sh"
# shellcheck source=engines/template.sh
source "$HERE/../template.sh"
MODEL=gpt-oss-teleprompter

install_shard() {
  if ! cmp -s "$HERE/requirements.lock" venv/installed.lock; then
    say "grpcio, tokenizers (90 MB on disk)"
    rm -rf venv
    "$PYTHON" -m venv venv
    venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement "$HERE/requirements.lock"
    cp "$HERE/requirements.lock" venv/installed.lock
  fi
  mkdir -p protocol
  venv/bin/python -m grpc_tools.protoc --proto_path "$HERE" --python_out protocol generate.proto
}

# The router looks for a template in tokenizer_config.json, and for the tokenizer in `out`.
install_model() {
  mkdir -p "$MODEL" out
  cp model/tokenizer.json "$MODEL/"
  cp model/tokenizer.json out/
  echo '{"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss"}' > "$MODEL/config.json"
  "$PYTHON" -c 'import json, sys
config, template = (open(file, encoding="utf-8").read() for file in sys.argv[1:])
print(json.dumps({**json.loads(config), "chat_template": template}))' model/tokenizer_config.json "$TEMPLATE" > "$MODEL/tokenizer_config.json"
}

# TGI has one dependency that is no crate. OUTLINES_CORE is a clone of it, for machines that cannot reach its repository.
build_router() {
  [[ -z ${TGI_ROUTER:-} && ! -x router && -n ${TGI_SOURCE:-} ]] || return 0
  say "router (compiled, ten minutes of processor time, 1.5 GB until it is done)"
  rm -rf source
  cp -r "$TGI_SOURCE" source
  printf '#!/bin/sh\nexec "%s/venv/bin/python" -m grpc_tools.protoc "$@"\n' "$PWD" > protoc
  chmod +x protoc
  (
    cd source
    export RUSTUP_TOOLCHAIN=${RUSTUP_TOOLCHAIN:-stable} PROTOC=$PWD/../protoc CARGO_TARGET_DIR=$PWD/../target CARGO_NET_GIT_FETCH_WITH_CLI=true
    export CARGO_PROFILE_RELEASE_INCREMENTAL=false CARGO_PROFILE_RELEASE_OPT_LEVEL=1
    if [[ -n ${OUTLINES_CORE:-} ]]; then
      export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=url.$OUTLINES_CORE.insteadOf GIT_CONFIG_VALUE_0=https://github.com/dottxt-ai/outlines-core.git
    fi
    cargo update --quiet --package metrics --precise 0.23.1 # 0.23.0 is an error to the compilers of 2025 and later
    nice cargo build --quiet --jobs "${JOBS:-2}" --locked --release --package text-generation-router-v3
  )
  "$PYTHON" -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR"))' > libraries # with the libpython that it is linked to
  cp target/release/text-generation-router router
  rm -rf source target
}

mkdir -p "$ROOT/.engines/tgi"
cd "$ROOT/.engines/tgi"
install_shard
install_tokenizer
install_template
install_model
build_router
say "ready: engines/tgi/serve.sh"
