# Two commands for a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
# one thread: the default two-thread BLAS is many times slower on factorizations
export OPENBLAS_NUM_THREADS := 1

.PHONY: demo test check lint format clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	touch $@

$(DEV): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test,dev,bench]'
	touch $@

demo: $(STAMP)  ## set up, then release the bundled table and write its report into demo-out/
	rm -rf demo-out
	$(BIN)/sfumato demo --out demo-out
	@echo "The command is $(BIN)/sfumato; to type it bare:  . $(BIN)/activate"

test: $(DEV)  ## the whole test suite
	$(BIN)/python -m pytest -n 2 -q

lint: $(DEV)  ## style, types, import contracts
	$(BIN)/ruff format --check src tests bench scripts
	$(BIN)/ruff check src tests bench scripts
	$(BIN)/basedpyright
	$(BIN)/lint-imports

check: lint test

format: $(DEV)
	$(BIN)/ruff check --fix src tests bench scripts
	$(BIN)/ruff format src tests bench scripts

clean:
	rm -rf $(VENV) demo-out dist
