# Two commands for a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
LINT := $(VENV)/.installed-lint
DOCS := $(VENV)/.installed-docs
# one thread: the default two-thread BLAS is many times slower on factorizations
export OPENBLAS_NUM_THREADS := 1

# tests whose figures pass through factorizations, eigenvectors or searches; at most 90 s on two cores for each kernel
NUMERICAL := tests/unit/test_kernels.py tests/unit/postprocess/test_tilted.py tests/unit/postprocess/test_hull.py \
	tests/unit/mechanisms/test_titles.py \
	$(patsubst %,tests/laws/test_%.py,optimal pure swap largest largest_rows allocation descent sources_page)
# without FMA, with it, and with AVX-512 where the processor has that; the tests as a whole run on what it has best
KERNELS := Prescott Haswell $(shell grep -qs avx512f /proc/cpuinfo && echo SkylakeX)

.PHONY: demo docs setup test deep kernels check lint style types contracts changelog wheel format clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[ui]'
	touch $@

$(DEV): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test,dev,bench,docs]'
	touch $@

demo: $(STAMP)  ## set up, then release the bundled table and write its report into demo-out/
	rm -rf demo-out
	$(BIN)/sfumato demo --out demo-out
	@echo "The command is $(BIN)/sfumato; to type it bare:  . $(BIN)/activate"

setup: $(DEV)  ## .venv with all that tests, lint and benches need

# loadfile: the tests of a file go to one process, which starts one Java or one browser for them; the long ones come first;
# four processes, as tests wait for disks, browsers and processes of their own half of the time
test: $(DEV)  ## the whole test suite
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder -q

deep: $(DEV)  ## the same from bits of the operating system, and long tests four times as long
	SFUMATO_TESTS_SEED=random SFUMATO_TESTS_DEPTH=4 $(MAKE) test

kernels: $(DEV)  ## the numerical tests on the other kernels that OpenBLAS has for this processor
	@own=$$($(BIN)/python tests/support/kernels.py); for kernel in $(KERNELS); do \
		if [ $$kernel = "$$own" ]; then continue; fi; \
		echo "OPENBLAS_CORETYPE=$$kernel"; \
		OPENBLAS_CORETYPE=$$kernel $(BIN)/python -m pytest -n 2 -q $(NUMERICAL) || exit 1; \
	done

$(LINT): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

$(DOCS): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	touch $@

docs: $(DOCS)  ## docs-site/: guide, reference, gallery, decisions, with search; it loads nothing from elsewhere
	$(BIN)/python scripts/docs.py

style: $(LINT)
	$(BIN)/ruff format --check src tests bench scripts
	$(BIN)/ruff check src tests bench scripts

types: $(LINT)
	$(BIN)/basedpyright

contracts: $(LINT)
	$(BIN)/lint-imports

lint: style types contracts  ## style, types, import contracts, with the dev extra alone

check: lint test

changelog: $(STAMP)  ## CHANGELOG.md from the fragments of changelog.d
	$(BIN)/python scripts/changelog.py

wheel:  ## dist/: the sdist, and the wheel from it, of what is committed; then the tests against that wheel (TESTS=...)
	$(PYTHON) scripts/wheel.py $(TESTS)

format: $(LINT)
	$(BIN)/ruff check --fix src tests bench scripts
	$(BIN)/ruff format src tests bench scripts

clean:
	rm -rf $(VENV) demo-out dist docs-site
