# Everything runs in .venv, made from requirements/dev.lock. Needs python3 (3.11 or newer) and make.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

# the last transformers that evaluates response schemas; the environment has the newest, which renders templates
TRANSFORMERS := .oracles/transformers-5.14
# the older official client of TGI: it wants a huggingface_hub that transformers no longer takes
TEXT_GENERATION := .oracles/text-generation
# the newest mitmproxy, which needs Python 3.12; where there is none, the tests on it are skipped
MITMPROXY := .oracles/mitmproxy-12

# pip-audit and cyclonedx-py, which are no part of the environment that they examine
AUDIT := .oracles/audit

# what was compiled is kept, or each of the tests' many processes would compile it all again
unexport PYTHONDONTWRITEBYTECODE

# every target in small letters is a command, not a file
.PHONY: $(shell sed -nE 's/^([a-z][a-z -]*):.*/\1/p' $(MAKEFILE_LIST))

##@ Each day

help:  ## list the targets
	@awk -F ':.* ## ' '/^##@/ {print "\n" substr($$0, 5)} \
	  /^[a-z][a-z -]*:.* ## / {n = split($$1, names, " "); for (i = 1; i <= n; i++) printf "  %-30s %s\n", names[i], $$2}' $(MAKEFILE_LIST)

# $(call install,ENVIRONMENT,ARGUMENTS): by uv, which takes a tenth of pip's time; by pip where uv has no wheel, or where only pip knows an index.
# Nothing is compiled here: a module is when it is first imported, and most of what is installed never is.
install = $(BIN)/uv pip install --quiet --python $(1)/bin/python $(2) || \
  $(BIN)/python -m pip --python $(1)/bin/python install --quiet --disable-pip-version-check --no-compile $(2)

setup: $(READY)  ## make the environment .venv from pinned versions

$(READY): requirements/installer.lock requirements/dev.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements/installer.lock
	$(call install,.venv,--require-hashes -r requirements/dev.lock)
	$(call install,.venv,--no-deps --no-build-isolation --editable .)
	@touch $@

demo: $(READY)  ## run the suite against the embedded reference server
	$(BIN)/harmony-conformance run reference

# single-threaded jobs on two cores: the longest first, and those that wait for processes before those that only compute. The output of each is printed in
# one piece when it ends. Not by pytest-xdist: each worker would collect all tests before it runs its share.
test: $(READY)  ## run all that CI runs; JOBS=3 at a time, since many tests wait for processes
	@$(MAKE) --no-print-directory -j $(JOBS) environments
	@$(MAKE) --no-print-directory -j $(JOBS) $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) together

JOBS ?= 3
together: lint unit-cli unit-conformance unit-proxy unit-data unit-harmony_ref unit-examples types-pyright selftest-sample types-mypy golden

check: lint types  ## run `lint` and `types`, but no tests

lint: $(READY)  ## check style, import contracts, and the language of code and pages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python tools/lint_language.py

types: types-mypy types-pyright  ## check types with mypy and pyright, both strict

types-mypy: $(READY)
	$(BIN)/mypy

types-pyright: $(READY)
	$(BIN)/pyright --pythonpath $(BIN)/python

ORACLES := $(TRANSFORMERS)/.ready $(TEXT_GENERATION)/.ready
UNIT = HARMONY_TRANSFORMERS_PYTHON=$(TRANSFORMERS)/bin/python HARMONY_TEXT_GENERATION_PYTHON=$(TEXT_GENERATION)/bin/python \
  HARMONY_MITMPROXY_PYTHON=$(MITMPROXY)/bin/python $(BIN)/python -m pytest -q

environments: $(READY) $(ORACLES) $(MITMPROXY)/.ready  # before the tests, or make begins with those that need fewer of them

unit: $(READY) $(ORACLES) $(MITMPROXY)/.ready  ## run all tests, also the slow ones
	$(UNIT) -n 2

FAST := -m "not slow"

unit-harmony_ref unit-proxy: unit-%: $(READY) $(ORACLES)  # those of one folder, in one process
	$(UNIT) $(FAST) $*/tests

unit-proxy unit-cli unit-data: $(MITMPROXY)/.ready

EXAMPLES_OF_CHECKS := $(wildcard conformance/tests/golden/test_golden*.py)

# the tests that start commands, and those of large data: separate jobs, or unit-conformance would end long after the others
COMMANDS := $(addprefix conformance/tests/,cli test_examples_in_pages.py)
DATA := $(addprefix conformance/tests/,audit load report sampling)

unit-conformance: $(READY) $(ORACLES)
	$(UNIT) $(FAST) conformance/tests $(EXAMPLES_OF_CHECKS:%=--ignore=%) $(COMMANDS:%=--ignore=%) $(DATA:%=--ignore=%)

unit-cli: $(READY) $(ORACLES)
	$(UNIT) $(FAST) $(COMMANDS)

unit-data: $(READY) $(ORACLES)
	$(UNIT) $(FAST) $(DATA)

unit-examples: $(READY)
	$(UNIT) $(FAST) $(EXAMPLES_OF_CHECKS)

.oracles/%/.ready: requirements/%.lock | $(READY)
	$(PYTHON) -m venv --without-pip .oracles/$*
	$(call install,.oracles/$*,--require-hashes -r requirements/$*.lock)
	@touch $@

$(MITMPROXY)/.ready: requirements/mitmproxy-12.lock pyproject.toml | $(READY)
	@mkdir -p $(MITMPROXY)
	@for python in python3.12 python3.13 $(PYTHON) "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.1[23].*/bin/python3; do \
	  "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null || continue; \
	  "$$python" -m venv --without-pip $(MITMPROXY) || exit 1; \
	  $(call install,$(MITMPROXY),--require-hashes -r requirements/mitmproxy-12.lock) || exit 1; \
	  $(call install,$(MITMPROXY),--no-deps --no-build-isolation --editable .) || exit 1; \
	  break; \
	done
	@touch $@

golden: $(READY)  ## compare every golden vector with every implementation
	$(BIN)/harmony-conformance golden check

selftest-sample: $(READY)  ## run each thirtieth defect of the selftest, as CI does
	$(BIN)/harmony-conformance selftest --every 30

clean:  ## remove the environment and what runs left behind
	rm -rf .venv .oracles .benchmarks .engines runs dist

##@ Before a release

test-slow: environments  ## run the tests that CI leaves out: examples, packages, benchmarks, large data
	$(UNIT) -n 2 -m slow

test-guides: $(READY) $(MITMPROXY)/.ready  ## check that the commands of every guide print what it shows; a minute (CI: three pages)
	HARMONY_ALL_GUIDES=1 $(BIN)/python -m pytest -q conformance/tests/test_examples_in_pages.py -k test_output_of_guides

test-browser: $(READY)  ## test the HTML pages in Chromium of the system, and the HAR file that it records
	.venv/bin/uv pip install --quiet --python .venv/bin/python --require-hashes -r requirements/playwright.lock
	$(BIN)/python -m pytest -v -p no:randomly conformance/tests/report/pages/test_pages_in_browser.py conformance/tests/audit/readers/test_chromium_archive.py proxy/tests/judging/test_live_page.py conformance/tests/test_pictures.py

test-ray: .oracles/ray/.ready  ## test audits on a local Ray cluster whose processes are killed, and Arrow batches in Ray Data and Spark (Java 17)
	$(call install,.oracles/ray,--no-deps --no-build-isolation --editable .)
	RAY_USAGE_STATS_ENABLED=0 .oracles/ray/bin/python -m pytest -q --noconftest -o addopts= -p no:cacheprovider conformance/tests/audit/processes/test_ray_engine.py conformance/tests/audit/test_arrow_engines.py

# the collector of OpenTelemetry with its receiver of OTLP and its file exporter, compiled by its own builder
OTELCOL := .oracles/otelcol/otelcol

$(OTELCOL): requirements/otelcol.yaml
	mkdir -p $(@D)
	GOTOOLCHAIN=local GOFLAGS=-mod=mod go run go.opentelemetry.io/collector/cmd/builder@v0.161.0 --config=$< --skip-compilation
	cd $(@D)/source && GOTOOLCHAIN=local GOFLAGS=-mod=mod go build -trimpath -ldflags="-s -w" -o ../otelcol .

test-otel: $(READY) $(OTELCOL)  ## test spans of the proxy with a real OpenTelemetry collector, which Go compiles in some minutes
	HARMONY_OTELCOL=$(CURDIR)/$(OTELCOL) $(BIN)/python -m pytest -q proxy/tests/judging/test_telemetry.py

fuzz: EXAMPLES ?= 200000
fuzz: SEED ?= $(shell date +%Y%m%d)
fuzz: $(READY)  ## compare random inputs with openai-harmony; EXAMPLES=200000 SEED=<today>
	HARMONY_FUZZ_EXAMPLES=$(EXAMPLES) HARMONY_FUZZ_SEED=$(SEED) $(BIN)/python -m pytest -v -n 2 --timeout 3600 harmony_ref/tests/fuzz

selftest: $(READY)  ## run every defect against every check, and blind mutants; minutes on two quiet cores
	$(BIN)/harmony-conformance selftest

# every extra except ray's, which is large, and mitmproxy's, which needs a newer Python and pins much of its environment
EXTRAS := pytest http2 socks websocket compat huggingface teleprompter proxy otel logs needles

LOCKED = uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header --upgrade

lock:  ## pin the newest versions of the environment (needs uv); those of oracles and rivals are chosen by hand
	$(LOCKED) --python-version 3.11 pyproject.toml --group dev $(EXTRAS:%=--extra %) -o requirements/dev.lock
	$(LOCKED) --python-version 3.12 pyproject.toml --group build --extra pytest --extra mitmproxy -o requirements/mitmproxy-12.lock
	$(LOCKED) --python-version 3.11 pyproject.toml --group build --group engines --extra pytest --extra logs --extra needles --extra ray -o requirements/ray.lock
	echo uv | $(LOCKED) --python-version 3.11 - -o requirements/installer.lock
	printf 'zensical\nmkdocstrings-python\n' | $(LOCKED) --python-version 3.11 - -o requirements/site.lock
	echo playwright | $(LOCKED) --python-version 3.11 - -o requirements/playwright.lock
	echo twine | $(LOCKED) --python-version 3.11 - -o requirements/package.lock

site: $(READY) .benchmarks/site/.ready  ## write the documentation to dist/docs/site/; REPOSITORY=URL
	$(BIN)/python tools/write_site.py dist/docs $(if $(REPOSITORY),--repository $(REPOSITORY))
	.benchmarks/site/bin/zensical build --strict -f dist/docs/zensical.toml

package: $(READY) .oracles/package/.ready  ## build sdist and wheel twice into dist/, and try them in empty environments; ARGUMENTS="--python 3.12"
	$(BIN)/python tools/check_package.py .oracles/package/bin/twine dist $(ARGUMENTS)

sbom: $(READY) $(AUDIT)/.ready $(MITMPROXY)/.ready  ## write what each extra installs to dist/sbom/, as CycloneDX
	$(BIN)/python tools/write_sbom.py $(AUDIT)/bin/cyclonedx-py dist/sbom $(MITMPROXY)/bin/python

audit-dependencies: $(READY) $(AUDIT)/.ready  ## compare the locks with known vulnerabilities, where advisories can be reached
	@$(BIN)/python tools/audit_dependencies.py $(AUDIT)/bin/pip-audit requirements/dev.lock requirements/mitmproxy-12.lock

##@ Benchmarks: each measures, and writes benchmarks/results/ and its page in docs/

bench: $(READY) .benchmarks/oss-harmony/.ready .benchmarks/plot/.ready  ## the suite beside its rivals; wants a quiet machine: performance.md
	$(BIN)/python benchmarks/side_by_side.py
	$(BIN)/python benchmarks/report.py benchmarks/results/side_by_side.json docs/performance.md
	.benchmarks/plot/bin/python benchmarks/plot.py benchmarks/results/side_by_side.json docs/performance.svg

bench-leaks: $(READY)  ## leaks and innocent answers: leak-detection.md
	$(BIN)/python benchmarks/leaks/false_alarms.py
	$(BIN)/python benchmarks/leaks/page.py benchmarks/results/false_alarms.json docs/leak-detection.md

bench-proxy: MEASURED := $(if $(QUICK),runs,benchmarks/results)
bench-proxy: PAGES := $(if $(QUICK),runs,docs)
bench-proxy: $(READY) $(MITMPROXY)/.ready  ## proxies side by side: proxy-performance.md; QUICK=1 for a rough minute and runs/proxy-performance.md
	$(BIN)/python benchmarks/proxy/measure.py $(if $(QUICK),--quick) --out $(MEASURED)/proxy.json
	$(BIN)/python benchmarks/proxy/page.py $(MEASURED)/proxy.json benchmarks/results/proxy_soak.json $(PAGES)/proxy-performance.md

bench-soak: MINUTES ?= 30
bench-soak: $(READY) $(MITMPROXY)/.ready  ## the proxy under load with faults: proxy-performance.md; MINUTES=30, STREAMS=70 % of the measured limit
	$(BIN)/python benchmarks/proxy/soak.py --minutes $(MINUTES) $(if $(STREAMS),--streams $(STREAMS))
	$(BIN)/python benchmarks/proxy/page.py benchmarks/results/proxy.json benchmarks/results/proxy_soak.json docs/proxy-performance.md

bench-causes: $(READY)  ## 300 random pairs and triples of defects: are the named causes those that are switched on?
	$(BIN)/python -m benchmarks.causes.measure
	$(BIN)/python -m benchmarks.causes.misses

bench-guidellm: $(READY) .benchmarks/guidellm/.ready  ## one server by `load` and by guidellm in turns (6 GB): the table of load.md
	$(BIN)/python benchmarks/load_beside_guidellm.py .benchmarks/guidellm/bin/guidellm --out benchmarks/results/load_beside_guidellm.json --page docs/load.md

bench-audit: SIZE ?= 1GB
bench-audit: LARGEST ?= 10GB
bench-audit: $(READY) .benchmarks/orjson/.ready .benchmarks/plot/.ready  ## audits of generated logs beside a JSON parser: audit-performance.md; SIZE=1GB, LARGEST=10GB, ten minutes
	$(BIN)/python benchmarks/audit/measure.py --size $(SIZE) --out benchmarks/results/audit.json
	$(BIN)/python benchmarks/audit/growth.py --largest $(LARGEST) --out benchmarks/results/audit_growth.json
	$(BIN)/python benchmarks/audit/page.py benchmarks/results/audit.json benchmarks/results/audit_growth.json docs/audit-performance.md
	.benchmarks/plot/bin/python benchmarks/audit/plot.py benchmarks/results/audit_growth.json docs/audit-performance.svg

bench-hostile: $(READY)  ## attacks on every part that takes input, bounded and on loopback only: hostile.md; a quarter of an hour
	$(BIN)/python benchmarks/hostile/hostile.py --out benchmarks/results/hostile.json; code=$$?; \
	  $(BIN)/python benchmarks/hostile/page.py benchmarks/results/hostile.json docs/hostile.md && exit $$code

.benchmarks/%/.ready: requirements/%.lock
	$(PYTHON) -m venv .benchmarks/$*
	.benchmarks/$*/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/$*.lock
	@touch $@

##@ Real servers on this machine (opt-in): build the server, run the suite against it, write the report to reports/

ENGINES := vllm vllm-render llama-cpp ollama tgi transformers gpt-oss litellm sglang-router

$(ENGINES:%=engine-%): engine-%: $(READY)
	engines/$*/run.sh

engine-vllm:  ## vLLM; VLLM=0.11.0 for that release
engine-vllm-render:  ## vLLM's endpoints that render prompts and read outputs, without a model
engine-llama-cpp:  ## llama.cpp; BUILD=b7551 or b8929 for an older one
engine-ollama:  ## Ollama; OLLAMA=0.12.11 for that release
engine-tgi:  ## TGI's router, a binary (TGI_ROUTER) or compiled (TGI_SOURCE), with a shard that plays scripts
engine-transformers:  ## `transformers serve`
engine-gpt-oss:  ## gpt-oss's own Responses server
engine-litellm:  ## LiteLLM before the reference server, each pair of APIs in front and behind
engine-sglang-router:  ## SGLang's router before a scripted worker; ROUTER=smg-1.13.0 for its successor

engine-vllm-responses: $(READY)  ## vLLM, Responses API
	OUT=reports/vllm-$(or $(VLLM),0.32.0)-responses engines/vllm/run.sh --api responses --timeout 180 --latency 0

engine-vllm-messages: $(READY)  ## vLLM, Messages API
	OUT=reports/vllm-0.32.0-messages engines/vllm/run.sh --api messages --timeout 180 --latency 0

engine-vllm-render-responses: $(READY)  ## vLLM's prompts of the Responses API
	OUT=reports/vllm-0.33.0-render-responses engines/vllm-render/run.sh --api responses

engine-llama-cpp-responses: $(READY)  ## llama.cpp, Responses API
	OUT=reports/llama.cpp-b11549-responses engines/llama-cpp/run.sh --api responses --latency 0

engine-llama-cpp-messages: $(READY)  ## llama.cpp, Messages API
	OUT=reports/llama.cpp-b11549-messages engines/llama-cpp/run.sh --api messages --latency 0

engine-ollama-messages: $(READY)  ## Ollama, Messages API
	OUT=reports/ollama-0.34.4-messages engines/ollama/run.sh --api messages

engine-tgi-chat: $(READY)  ## TGI's router, Chat Completions
	OUT=reports/tgi-3.3.7-chat engines/tgi/run.sh --api chat --select tool_choice --select wrong_requests --select several_choices --select json_answer

engine-transformers-responses: $(READY)  ## `transformers serve`, Responses API
	OUT=reports/transformers-5.23.0-responses engines/transformers/run.sh --api responses

engine-ollama-client engine-tgi-client: engine-%-client: $(READY)  ## the official client of Ollama or TGI against the same server
	engines/$*/client.sh

PARSERS := sglang dynamo lmdeploy vllm-rs

engine-parsers: $(PARSERS:%=engine-parsers-%)  ## each of the next four

engine-parsers-sglang engine-parsers-dynamo engine-parsers-lmdeploy engine-parsers-vllm-rs: engine-parsers-%: $(READY)  ## a server before a scripted engine, without a GPU
	engines/parsers/run.sh $*

engine-proxied-vllm engine-proxied-llama-cpp: engine-proxied-%: $(READY) $(MITMPROXY)/.ready  ## the proxy in each of its forms before a real server
	engines/proxied/run.sh $*

record-clients: $(READY)  ## record what Codex, Claude Code and other clients send into golden/scenarios; CLIENTS="codex langchain" for some
	engines/clients/run.sh $(CLIENTS)
