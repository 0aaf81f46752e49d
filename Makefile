# Nothing is needed first but Python 3.11+ and make. `make demo` and `make test` set everything up themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_TO_TEST := $(VENV)/.ready-to-test
# A build that fits every machine, and no network once it is installed.
PIP := $(BIN)/python -m pip --disable-pip-version-check

# One more than there are cores: many tests wait for a process of their own.
WORKERS = $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')

.PHONY: help demo test lint format site dist clean
help:  ## say what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(READY): pyproject.toml constraints.txt hatch_build.py $(shell find src -name '*.[ch]')
	$(PYTHON) -c 'import sys; sys.exit("btfl needs Python 3.11 or newer, not " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint constraints.txt torch
	$(PIP) install --quiet --constraint constraints.txt --editable '.[train]'
	@touch $@

$(READY_TO_TEST): $(READY)
	$(PIP) install --quiet --constraint constraints.txt --editable '.[train,flower,onnx,tensorboard,mlflow,drift,postgres,privacy,docs,dev]'
	@touch $@

demo: $(READY)  ## train on handwritten digits, compare the methods, write a report
	$(BIN)/btfl demo

test: $(READY_TO_TEST)  ## run the tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

lint: $(READY_TO_TEST)  ## ruff, mypy, the import contracts and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

site: $(READY_TO_TEST)  ## build the documentation as a site, into site/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --clean

dist: $(READY_TO_TEST)  ## build wheel and sdist, check them, and install each to see that it works
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*
	$(BIN)/python .ci/check_dist.py dist/*.whl dist/*.tar.gz

format: $(READY_TO_TEST)  ## let ruff format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove what was made
	rm -rf $(VENV) runs dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
