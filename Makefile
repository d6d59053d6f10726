# `make demo` shows it working on real prompts, `make test` checks it, `make gate` guards against regressions.
PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo dev test types tests gate pages fuzz crash install engines clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(PIP) -c $(CONSTRAINTS) torch
	$(PIP) -c $(CONSTRAINTS) -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) -c $(CONSTRAINTS) -e '.[dev]'
	touch $@

dev: $(VENV)/.installed-dev

# Fetches model and data on first use, then compares strategies over real ShareGPT prompts that the head never saw.
demo: $(VENV)/.installed
	$(BIN)/specbench run --dataset-name sharegpt-held-out --num-prompts 8 --output-len 64 --label demo

# mypy takes 50 s of one core where it has no cache, so it runs beside the tests.
test: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	+$(MAKE) --no-print-directory -j 2 types tests

types: $(VENV)/.installed-dev
	$(BIN)/mypy

# Three workers for two cores: tests wait for processes and browsers a third of their time; a fourth made it slower.
tests: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q -n 3 --dist worksteal

# A small benchmark of this code under the policies in .ci/, the parent commit against this one, a site of it, and the
# tests that need a quiet machine.
gate: $(VENV)/.installed-dev
	$(BIN)/python .ci/gate.py

# Draws the site of the stored runs with the parent commit and this one, in Chromium, at 420 and 1440 px, and reports
# which pages differ and by how much. Images of the differences are in site-changes/.
pages: $(VENV)/.installed-dev
	$(BIN)/python .ci/compare_pages.py

# Coverage-guided fuzzing of every reader and the command line for SECONDS, with other inputs for each SEED. Inputs that
# break something are kept in fuzz-found/. Targets by name: make fuzz TARGETS='kineto gguf'. atheris has a wheel only for
# Python 3.11.
SECONDS ?= 60
SEED ?= 1
TARGETS ?=
fuzz: $(VENV)/.installed-dev
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then \
	    $(PIP) -c $(CONSTRAINTS) atheris && \
	    PYTHONPATH=.ns:tests:tests/harness $(BIN)/python -m fuzz $(SECONDS) $(SEED) $(TARGETS); \
	else echo "make fuzz is skipped: it needs Python 3.11, for which atheris has a wheel"; fi

# kill -9 at KILLS random times during five commands on the toy model, each of which must then resume and finish.
KILLS ?= 20
crash: $(VENV)/.installed-dev
	PYTHONPATH=.ns:tests $(BIN)/python -m crash --kills $(KILLS) --seed $(SEED) $(if $(OUT),--out $(OUT))

# Another engine in a separate environment, to compare with: vLLM for a CPU with AVX-512 (3.4 GB, 5 to 8 minutes), or
# llama.cpp, which is compiled (15 minutes) and needs specbench's own Python in ENGINE_PYTHON.
# Then: specbench run --engine vllm --engine-python .engines/vllm
ENGINE ?= vllm
engines:
	.ci/engines/$(ENGINE).sh .engines/$(ENGINE)

clean:
	rm -rf $(VENV) build dist *.egg-info
