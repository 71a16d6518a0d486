PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# uv is faster; pip finds torch's CPU build where it is configured, which uv does not read
UV := $(shell command -v uv)
PIP = $(BIN)/python -m pip install --disable-pip-version-check

# the tests start hundreds of processes, each of which would compile torch again where Python writes no bytecode
export PYTHONDONTWRITEBYTECODE =

.PHONY: ask test models lint docs check bench examples results clean

ask: $(VENV)/ask-ready  ## a question about the sample documents, answered with its trace
	$(BIN)/typedrag models fetch qwen2.5-coder-1.5b
	$(BIN)/typedrag ask "What is the difference between green tea and black tea?" --trace

test: models  ## all tests; with the 1.1 GB model too where CI is set
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m "not lm"
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m lm tests

models: $(VENV)/ready  ## fetch the models that tests use
	$(BIN)/typedrag models fetch smollm2-135m
	$(BIN)/typedrag models fetch all-minilm-l6-v2
	$(BIN)/typedrag models fetch lucene
	if [ -n "$$CI" ]; then $(BIN)/typedrag models fetch qwen2.5-coder-1.5b; fi

lint: $(VENV)/ready  ## style, types, and who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy scripts
	$(BIN)/lint-imports

docs: $(VENV)/ready  ## the site, in site/: tutorials, how-to, explanation, results, references
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

check: lint test  ## what must pass before a commit lands

bench: $(VENV)/ready  ## every performance claim, as ratios to a baseline
	$(BIN)/python -m benchmarks.startup
	$(BIN)/python -m benchmarks.latency
	$(BIN)/python -m benchmarks.retrieval
	$(BIN)/python -m benchmarks.evaluation
	$(BIN)/python -m benchmarks.sweep

examples: $(VENV)/ask-ready  ## the answers to all sample questions, in docs/examples.md
	$(BIN)/typedrag models fetch qwen2.5-coder-1.5b
	$(BIN)/python scripts/ask_samples.py docs/examples.md

results: $(VENV)/ready  ## make docs/results.md again: hours, see the script; RESULTS="--lm vllm:MODEL …"
	$(BIN)/python scripts/results.py --out runs $(RESULTS)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/ask-ready: pyproject.toml | $(BIN)/python
	$(if $(UV),$(UV) pip install --python $(BIN)/python,$(PIP)) --quiet --editable '.[embedded,lucene]'
	touch $@

# without bytecode, which would take a minute: Python writes it for those modules that tests import
$(VENV)/ready: pyproject.toml | $(BIN)/python
	$(PIP) --no-compile --quiet --editable '.[all,dev]'
	touch $@

clean:
	rm -rf $(VENV) site build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
