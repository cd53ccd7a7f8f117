PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TOOLS ?= .venv-tools
BENCH ?= benchmarks

.PHONY: sweep test thorough export-tools bench lint clean slurm-up slurm-down slurm-test

sweep: $(VENV)/.installed
	$(BIN)/meshsweep run

test: $(VENV)/.installed-test lint
	$(BIN)/pytest tests/unit --numprocesses auto -p no:benchmark
	$(BIN)/pytest tests/contract tests/e2e --numprocesses 2 --dist worksteal -p no:benchmark
	$(BIN)/pytest tests/slurm

# Cases beyond those of every run: larger models and worlds, more meshes.
thorough: $(VENV)/.installed-test
	$(BIN)/pytest tests -m thorough

# The training tools' own parsers on what `recommend --export` writes, in an environment of its own on top of VENV.
export-tools: $(VENV)/.installed-test
	$(BIN)/python -m venv $(TOOLS)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		>"$$($(TOOLS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/venv.pth"
	$(TOOLS)/bin/pip install --quiet setuptools wheel
	DS_BUILD_OPS=0 $(TOOLS)/bin/pip install --quiet --no-deps --no-build-isolation -r tests/export-tools.txt
	$(TOOLS)/bin/python -m pytest tests/unit/test_export_tools.py -p no:benchmark

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
	rm -rf $(VENV) $(TOOLS) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .benchmarks
