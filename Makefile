PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
BENCH ?= benchmarks

.PHONY: sweep test thorough bench lint clean slurm-up slurm-down slurm-test

sweep: $(VENV)/.installed
	$(BIN)/meshsweep run

test: $(VENV)/.installed-test lint
	$(BIN)/pytest tests/unit --numprocesses auto -p no:benchmark
	$(BIN)/pytest tests/contract tests/e2e tests/slurm

# Cases beyond those of every run: larger models and worlds, more meshes.
thorough: $(VENV)/.installed-test
	$(BIN)/pytest tests -m thorough

# BENCH chooses: files, or options such as BENCH="benchmarks --layouts fsdp,hsdp".
bench: $(VENV)/.installed-test
	$(BIN)/pytest $(BENCH) --benchmark-only

# Needs root; CLUSTER holds options, such as CLUSTER="--nodes 4 --rate 1gbit".
slurm-up:
	slurm/virtual-cluster up $(CLUSTER)

slurm-down:
	slurm/virtual-cluster down

slurm-test: $(VENV)/.installed-test
	$(BIN)/pytest tests/slurm -m ''

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .benchmarks
