# Needs Python 3.11 or newer, make and a network; everything goes into .venv and out/.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DSE_DATA ?=
export DSE_DATA

.PHONY: help demo test lint typecheck figures bench validate clean

help:
	@echo "make demo       install, and search a small space for a chip that trains GPT-3 6.7B (under two minutes)"
	@echo "make test       install, and run the tests"
	@echo "make lint       ruff            make typecheck  mypy, strict on the public packages"
	@echo "make bench      designs evaluated a second on this machine"
	@echo "make validate   predictions beside published measurements (DSE_DATA=folder: more of them)"
	@echo "make figures    rebuild every figure of the documents from its committed table"
	@echo "make clean      remove .venv, build products and out/"

demo: $(VENV)/.runs
	$(BIN)/dse search searches/quickstart.yaml --out out/quickstart

test: $(VENV)/.tests
	$(BIN)/python -m pytest -q

lint: $(VENV)/.dev
	$(BIN)/ruff check .

typecheck: $(VENV)/.dev
	$(BIN)/mypy

figures: $(VENV)/.runs
	$(BIN)/python docs/make_figures.py

bench: $(VENV)/.runs
	$(BIN)/dse bench

validate: $(VENV)/.runs
	$(BIN)/dse validate

clean:
	rm -rf $(VENV) build dist out *.egg-info .pytest_cache .mypy_cache .ruff_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed, this is " + sys.version.split()[0] + "; choose one with make PYTHON=python3.12 demo")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runs: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.tests: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[test]"
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[test,dev]"
	@touch $@
