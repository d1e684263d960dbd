# Two commands do everything: `make lab` opens the guided tour, `make test` proves that it all works.
# Both set up their own virtual environment in .venv; a second run only checks that nothing has changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NOTEBOOKS := notebooks
BUILD := build
# A worker for each processor; tests/conftest.py keeps the browser's tests together on one of them.
PARALLEL := -n auto

.PHONY: lab demo lessons test frameworks bench fuzz clean lint types unit vectors notebooks browser

lab: $(VENV)/.lab
	$(BIN)/jupyter lab $(NOTEBOOKS)/00_tour.ipynb

demo: $(VENV)/.lab
	$(BIN)/python $(NOTEBOOKS)/export.py $(NOTEBOOKS)/00_tour.ipynb $(BUILD)/tour.html

# Copies for students beside their sources, the teacher's edition and slides in the build folder.
lessons: $(VENV)/.test
	$(BIN)/python $(NOTEBOOKS)/build.py
	$(BIN)/python $(NOTEBOOKS)/build.py --teacher $(BUILD)/teacher --slides $(BUILD)/slides

test: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest $(PARALLEL)

# The groups of `make test`, for working on one thing at a time.
lint: $(VENV)/.test
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
types: $(VENV)/.test
	$(BIN)/mypy
unit: $(VENV)/.test
	$(BIN)/pytest $(PARALLEL) noetic_nb README.md tests --ignore=tests/vectors --ignore=tests/notebooks --ignore=tests/browser
vectors: $(VENV)/.test
	$(BIN)/pytest $(PARALLEL) tests/vectors tests/regulator
notebooks: $(VENV)/.test
	$(BIN)/pytest notebooks tests/notebooks
browser: $(VENV)/.test
	$(BIN)/pytest tests/browser

# Agents of other frameworks, watched for real: an environment of its own, since they pin what others leave open. Installed once;
# nothing in it uses the network afterwards.
FRAMEWORKS := .venv-frameworks
frameworks: $(FRAMEWORKS)/.done
	$(FRAMEWORKS)/bin/python -m pytest -c tests/frameworks/settings.ini tests/frameworks

$(FRAMEWORKS)/.done: $(BIN)/python pyproject.toml tests/frameworks/requirements.txt
	$(BIN)/python -m venv $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement tests/frameworks/requirements.txt --editable .
	@touch $@

# Ratios against peers measured in the same run. The drift study needs the full data set: see CONTRIBUTING.md.
BENCHMARKS := runtime memory tokens steering regulator storage widgets interop watching
bench: $(VENV)/.bench
	for name in $(BENCHMARKS); do echo "== $$name"; $(BIN)/python -m benchmarks.$$name || exit 1; done

# A million random events through our regulator and the compiled original, side by side.
fuzz: $(VENV)/.test
	NOETIC_NB_FUZZ_EVENTS=1000000 $(BIN)/pytest --timeout=0 tests/regulator/test_wheel.py

clean:
	rm -rf $(BUILD) $(VENV) $(FRAMEWORKS) .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "noetic_nb needs Python 3.11 or newer, and '$(PYTHON)' was not found."; \
	  echo "Install it (Debian: apt-get install python3 python3-venv), or name one: make PYTHON=/path/to/python3 ..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "noetic_nb needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V)."; \
	  echo "Name a newer one: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "'$(PYTHON)' cannot create virtual environments: its venv or ensurepip module is missing."; \
	  echo "On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.lab: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[lab,rules,study]'
	@touch $@

$(VENV)/.test: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[lab,rules,otel,study,dask,tokens,test]'
	@touch $@

$(VENV)/.bench: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[lab,rules,otel,study,dask,tokens,test,bench]'
	@touch $@
