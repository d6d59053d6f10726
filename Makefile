# `make demo` shows it working on real prompts, `make test` proves it, `make gate` holds it to what it was.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test gate fuzz crash install engines clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -c constraints.txt torch
	$(PIP) -c constraints.txt -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) -c constraints.txt -e '.[dev]'
	touch $@

# Fetches model and data on first use, then compares strategies over real ShareGPT prompts that the head never saw.
demo: $(VENV)/.installed
	$(BIN)/specbench run --dataset-name sharegpt-held-out --num-prompts 8 --output-len 64 --label demo

test: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -n 2

# A small benchmark of this code under the policies in .ci/, the parent commit against this one, a site of it, and the
# tests that need a quiet machine.
gate: $(VENV)/.installed-dev
	$(BIN)/python .ci/gate.py

# Hostile input for every reader and for the command line: the same in every run, then guided by coverage for SECONDS.
# Inputs that break something stay in fuzz-found/. Targets by name: make fuzz TARGETS='kineto gguf'.
SECONDS ?= 60
TARGETS ?=
fuzz: $(VENV)/.installed-dev
	$(PIP) -c constraints.txt -e '.[fuzz]'
	$(BIN)/python -m pytest -q tests/fuzz/readers.py $(if $(TARGETS),-k '$(subst $() $(), or ,$(TARGETS))')
	PYTHONPATH=.ns:tests:tests/harness $(BIN)/python -m fuzz $(SECONDS) $(TARGETS)

# kill -9 at KILLS random moments of five commands on the toy model, each of which must go on to its end.
KILLS ?= 20
SEED ?= 1
crash: $(VENV)/.installed-dev
	PYTHONPATH=.ns:tests $(BIN)/python -m crash --kills $(KILLS) --seed $(SEED) $(if $(OUT),--out $(OUT))

# Another engine in an environment of its own, to be compared with: vLLM for a CPU with AVX-512 (3.4 GB, 5 to 8 minutes),
# or llama.cpp, which is compiled (15 minutes) and wants specbench's own Python in ENGINE_PYTHON.
# Then: specbench run --engine vllm --engine-python .engines/vllm
ENGINE ?= vllm
engines:
	.ci/engines/$(ENGINE).sh .engines/$(ENGINE)

clean:
	rm -rf $(VENV) build dist *.egg-info
