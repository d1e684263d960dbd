# Two commands do everything: `make lab` opens the guided tour, `make test` proves that it all works.
# Both set up their own virtual environment in .venv; a second run only checks that nothing has changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NOTEBOOKS := notebooks
BUILD := build
# A worker for each processor, and one more where each may have 3 GB; tests/conftest.py says what stays together on one of them.
PARALLEL := -n auto
# Hundreds of tests start a process or a kernel: where an image for containers asks Python to keep no bytecode, each of
# them would compile the library again.
unexport PYTHONDONTWRITEBYTECODE

# uv installs several times as fast as pip and needs no venv module. `make UV= ...` does without it.
UV ?= $(shell command -v uv 2>/dev/null)
# uv brings a list of authorities, where pip asks the machine: behind a proxy that signs for itself uv would reach nothing. The
# second name is that of older versions.
export UV_SYSTEM_CERTS ?= true
export UV_NATIVE_TLS ?= true
# $(call environment,FOLDER) and $(call install,FOLDER,WHAT); both installers say what they fetch while they fetch it.
# A comma would end an argument of `call`: lists of extras have names.
environment = $(if $(UV),$(UV) venv --seed --allow-existing --python $(PYTHON) $1,$(PYTHON) -m venv $1)
install = $(if $(UV),$(UV) pip install --python $1/bin/python $2,$1/bin/python -m pip install --disable-pip-version-check $2)

LAB := .[lab,rules,study,otel]
TEST := .[lab,rules,otel,study,dask,tokens,test]
BENCH := .[lab,rules,otel,study,dask,tokens,test,bench]

# Where the laboratory is served: `make lab IP=0.0.0.0 PORT=9000` in a container. Without a port, the next free one from 8888 on.
IP ?=
PORT ?=
# A browser can be opened on macOS, on a desktop, from WSL, or where $BROWSER names one; elsewhere the address is printed.
SCREEN := $(or $(filter Darwin,$(shell uname -s)),$(DISPLAY),$(WAYLAND_DISPLAY),$(WSL_DISTRO_NAME),$(BROWSER))
LAB_OPTIONS = $(strip $(if $(filter 0,$(shell id -u)),--allow-root) $(if $(IP),--ip=$(IP)) \
  $(if $(PORT),--port=$(PORT)) $(if $(SCREEN),,--no-browser))

.PHONY: lab demo lessons docs links test frameworks lite wheel bench fuzz studies clean lint types unit vectors notebooks browser

lab: $(VENV)/.lab
	$(BIN)/jupyter lab $(LAB_OPTIONS) --LabApp.default_url=/lab/tree/00_tour.ipynb $(NOTEBOOKS)/00_tour.ipynb

demo: $(VENV)/.lab
	$(BIN)/python $(NOTEBOOKS)/export.py $(NOTEBOOKS)/00_tour.ipynb $(BUILD)/tour.html

# Copies for students beside their sources, the teacher's edition and slides in the build folder.
lessons: $(VENV)/.test
	$(BIN)/python $(NOTEBOOKS)/build.py
	$(BIN)/python $(NOTEBOOKS)/build.py --teacher $(BUILD)/teacher --slides $(BUILD)/slides

test: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@# Types are checked beside the tests, which wait for pages and processes now and then; shown at the end.
	@mkdir -p $(BUILD)
	@echo "$(BIN)/mypy & $(BIN)/pytest $(PARALLEL)"; \
	  $(BIN)/mypy >$(BUILD)/types.txt 2>&1 & types=$$!; \
	  $(BIN)/pytest $(PARALLEL); tests=$$?; \
	  wait $$types; types=$$?; cat $(BUILD)/types.txt; \
	  [ $$tests = 0 ] && [ $$types = 0 ]

# The site of the reference, in an environment of its own: no warning and no link that leads nowhere. `make links` also asks the web.
DOCS := .venv-docs
docs: $(DOCS)/.done
	$(DOCS)/bin/python docs/site/build.py $(BUILD)/docs
links: $(DOCS)/.done
	$(DOCS)/bin/python docs/site/build.py $(BUILD)/docs --links

$(DOCS)/.done: $(BIN)/python pyproject.toml
	$(call environment,$(DOCS))
	$(call install,$(DOCS),--editable '.[docs]')
	@touch $@

# The groups of `make test`, for working on one thing at a time.
lint: $(VENV)/.test
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
types: $(VENV)/.test
	$(BIN)/mypy
unit: $(VENV)/.test
	$(BIN)/pytest $(PARALLEL) noetic_nb tests --ignore=tests/vectors --ignore=tests/notebooks --ignore=tests/browser
vectors: $(VENV)/.test
	$(BIN)/pytest $(PARALLEL) tests/vectors tests/regulator
notebooks: $(VENV)/.test
	$(BIN)/pytest notebooks tests/notebooks
browser: $(VENV)/.test
	$(BIN)/pytest tests/browser

# Agents of other frameworks, watched for real: an environment of its own, since they pin what others leave open. Installed once;
# nothing in it uses the network afterwards.
FRAMEWORKS := .venv-frameworks
DOJO := .venv-dojo
frameworks: $(FRAMEWORKS)/.done $(DOJO)/.done
	$(FRAMEWORKS)/bin/python -m pytest -c tests/frameworks/settings.ini tests/frameworks
	$(DOJO)/bin/python -m pytest -c tests/frameworks/settings.ini tests/dojo

$(FRAMEWORKS)/.done: $(BIN)/python pyproject.toml tests/frameworks/requirements.txt
	$(call environment,$(FRAMEWORKS))
	$(call install,$(FRAMEWORKS),--requirement tests/frameworks/requirements.txt --editable .)
	@touch $@

# AgentDojo pins what the frameworks pin otherwise.
$(DOJO)/.done: $(BIN)/python pyproject.toml tests/dojo/requirements.txt
	$(call environment,$(DOJO))
	$(call install,$(DOJO),--requirement tests/dojo/requirements.txt --editable .)
	@touch $@

# A site that needs no server, tried in a browser that reaches nothing else: an environment of its own, for JupyterLite and what it
# is built from. What was fetched stays in it, each file held to its checksum.
LITE := .venv-lite
lite: $(LITE)/.done
	$(LITE)/bin/python lite/build.py --files $(LITE)/files --out $(BUILD)/lite
	$(LITE)/bin/python -m pytest -c tests/lite/settings.ini tests/lite

$(LITE)/.done: $(BIN)/python lite/requirements.txt
	$(call environment,$(LITE))
	$(call install,$(LITE),--require-hashes --requirement lite/requirements.txt)
	@touch $@

# The wheel as others meet it: built from the source archive, alone in a bare environment, away from the checkout. It runs every
# example of the README.
BARE := $(BUILD)/bare
wheel: $(VENV)/.build
	rm -rf dist $(BARE)
	$(BIN)/python -m build --outdir dist
	$(call environment,$(BARE))
	$(call install,$(BARE),dist/*.whl)
	cd $(BARE) && env -u PYTHONPATH bin/python -m doctest -o ELLIPSIS -o NORMALIZE_WHITESPACE $(CURDIR)/README.md
	@echo "The wheel runs the examples of the README: $$(ls dist/*.whl)"

# Every cost beside its peer or its floor, measured in the same run, and the page that says them: docs/costs.md.
# BENCHMARKS="turns storage" runs those alone and leaves the page as it is. The drift study needs the full data set: see CONTRIBUTING.md.
BENCHMARKS :=
bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks.collect $(BUILD)/bench.json $(BENCHMARKS)
	$(BIN)/python -m benchmarks.page $(BUILD)/bench.json docs/costs.md
	$(if $(BENCHMARKS),,$(BIN)/python -m benchmarks.coverage --write docs/studies/intervals.md)

# The studies that read only data of this repository are computed again: their pages must show the same figures.
studies: $(VENV)/.test
	NOETIC_NB_WHOLE=1 $(BIN)/pytest $(PARALLEL) --timeout=0 tests/docs/test_studies.py

# Every case of the matrices of which the suite takes a sample, and many random cases where it takes few: a million random events
# through our regulator and the compiled original, side by side.
fuzz: $(VENV)/.test
	NOETIC_NB_WHOLE=1 $(BIN)/pytest $(PARALLEL) --timeout=0 -m matrix tests

clean:
	rm -rf $(BUILD) $(VENV) $(FRAMEWORKS) $(DOJO) $(DOCS) $(LITE) .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "noetic_nb needs Python 3.11 or newer, and '$(PYTHON)' was not found."; \
	  echo "Install it (Debian: apt-get install python3 python3-venv), or name one: make PYTHON=/path/to/python3 ..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "noetic_nb needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V)."; \
	  echo "Name a newer one: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	@$(if $(UV),true,$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null) || { \
	  echo "'$(PYTHON)' cannot create virtual environments: its venv or ensurepip module is missing."; \
	  echo "On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	$(call environment,$(VENV))

$(VENV)/.lab: $(BIN)/python pyproject.toml
	$(call install,$(VENV),--editable '$(LAB)')
	@# Else JupyterLab asks about news over the tour.
	$(BIN)/python -m jupyterlab.labextensions disable --level=sys_prefix @jupyterlab/apputils-extension:announcements
	@touch $@

$(VENV)/.test: $(BIN)/python pyproject.toml
	$(call install,$(VENV),--editable '$(TEST)')
	@touch $@

$(VENV)/.build: $(BIN)/python pyproject.toml
	$(call install,$(VENV),--editable '.[build]')
	@touch $@

$(VENV)/.bench: $(VENV)/.test
	$(call install,$(VENV),--editable '$(BENCH)')
	@touch $@
