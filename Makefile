# `make demo` and `make test` do all of their own set-up, in .venv.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# A plain torch is a CUDA build of several gigabytes: without an NVIDIA driver take the CPU release that the tests pin.
HAS_GPU := $(shell command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L >/dev/null 2>&1 && echo yes)
TORCH   := $(if $(HAS_GPU),torch>=2.4,torch==2.13.0)

.PHONY: demo test lint types check-install fuzz bench clean

demo: $(VENV)/.loop
	$(BIN)/python -m scripts.demo

test: $(VENV)/.dev lint types
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest
	$(MAKE) check-install

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.dev
	$(BIN)/mypy

# A wheel in a fresh environment, as a user would install it: links followed, data files inside, no torch needed.
check-install: $(VENV)/.dev
	$(BIN)/python -m scripts.check_install

# Damaged traces, any number of them: make fuzz N=10000 (PROFKIT_CORPUS=DIR adds real ones).
N ?= 1000
fuzz: $(VENV)/.core
	$(BIN)/python -m scripts.fuzz $(N)

# What it costs to open a trace: make bench TOOLS=DIR, with BENCH="--sizes 10m --kineto --peers DIR" for more.
TOOLS ?= ../shared/tools
bench: $(VENV)/.core
	$(BIN)/python -m bench.open --tools $(TOOLS) $(BENCH)

$(VENV)/.core: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.loop: $(VENV)/.core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[loop]"
	touch $@

$(VENV)/.dev: $(VENV)/.loop
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[loop,dev]"
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
