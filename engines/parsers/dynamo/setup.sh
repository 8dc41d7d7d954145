#!/usr/bin/env bash
# Builds .engines/parsers/dynamo from nothing: NVIDIA Dynamo's front end and runtime, and the files of a gpt-oss model.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
MAKE_TARGET=engine-parsers-dynamo
# shellcheck source=engines/parsers/common.sh
source "$HERE/../common.sh"

enter dynamo
skip_if_unavailable
install_locked "$HERE" "ai-dynamo (0.5 GB on disk)"
install_model
install_vocabulary
say "ready: engines/parsers/dynamo/serve.sh"
