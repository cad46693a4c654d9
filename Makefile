# `make demo` and `make test` need Python 3.11, git and make; everything else they get themselves, into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/runs
STAMP := $(VENV)/installed

.PHONY: demo docs test check steady bench replay slow pictures faults engines slurms mutants fuzz sentences clean

demo: $(RUNS)
	@$(BIN)/agentless demo

docs: $(VENV)/docs  ## the documentation site, checked: build/site/index.html, to be opened as a file
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "documentation: build/site/index.html"

test: $(STAMP)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tests/run.py

check: $(STAMP)  ## the fast part of `make test`: style, types, imports
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tests/run.py --static

steady: $(STAMP)  ## `make test` N times (20), every fifth time beside busy loops: hours; what failed is in .steady/
	@tests/steady.sh $(N)

bench: $(STAMP)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.bench

replay: $(STAMP)  ## the queue against first come, first served, on jobs as a public trace has them; WHAT=--slurm: beside a real Slurm, as root, an hour
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.bench.replay $(or $(WHAT),--real)

slow: $(STAMP)  ## the tests that `make test` leaves out since they cost the most; as root, some minutes
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pytest -q -m slow -n 2 --dist loadfile tests/real tests/lab
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pytest -q -m slow tests/fleet
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pytest -q -m slow -n 2 --dist loadfile tests/pure

pictures: $(STAMP)  ## the pictures of README and docs anew, with Chromium: six minutes; then look at them
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev,pictures]'
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python docs/pictures/demo.py
	@PATH="$(CURDIR)/$(BIN):$$PATH" AGENTLESS_WRITE=1 $(BIN)/pytest -q tests/pure/test_dashboard_screens.py

faults: $(STAMP)  ## thousands of steps on simulated nodes, then every fault on real ones, as root; an hour and a half
	@PATH="$(CURDIR)/$(BIN):$$PATH" AGENTLESS_FAULTS=1 $(BIN)/pytest -q -s --timeout 0 tests/fleet/test_truth.py tests/fleet/test_hostile_week.py
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pytest -q -m slow tests/real/test_engine_changed.py
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.faults

engines: $(STAMP)  ## every command on Docker 20.10 to 28 and podman 4.3 to 5.8, as root; half an hour and 2 GB the first time; WHAT='podman --only env'
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.matrix $(WHAT)

slurms: $(STAMP)  ## tasks on Slurm 20.11, 24.11 and 26.05 from other Debian releases, as root; a quarter of an hour and 2 GB the first time
	@for each in bullseye trixie sid; do PATH="$(CURDIR)/$(BIN):$$PATH" AGENTLESS_LAB_SLURM=$$each-slurm $(BIN)/pytest -q -m "not slow" tests/real/test_slurm.py || exit; done

mutants: $(STAMP)  ## whether tests notice a changed decision: a sample, half an hour on two processors; WHAT='--all', '--seed 2', '--only node_timeline.py'
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.mutants $(WHAT)

fuzz: $(STAMP)  ## the HTTP API, asked for anything, 5 minutes; WHAT='--seed 2', '--only /v1/tasks'
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev,fuzz]'
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.fuzz $(WHAT)

sentences: $(STAMP)  ## tests/sentences/sentences.txt anew: every sentence that the program can print, for review
	@$(BIN)/python -m tests.sentences

# What agentless itself needs, with a dot a second; the tools for tests come with $(STAMP).
$(RUNS): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "agentless needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) 2>/dev/null \
	  || { test "$$(id -u)" = 0 && apt-get -qq update && apt-get -qq install -y python3-venv >/dev/null && $(PYTHON) -m venv $(VENV); } \
	  || { echo "python3 -m venv does not work; on Debian: apt-get install python3-venv"; exit 1; }
	@echo "Installing agentless into $(VENV), once ..."
	@while kill -0 $$$$ 2>/dev/null; do printf .; sleep 1; done & dots=$$!; \
	  $(BIN)/pip install --quiet --disable-pip-version-check --editable . 2>$(VENV)/pip.log || failed=1; \
	  kill $$dots; echo; test -z "$$failed" || { cat $(VENV)/pip.log; exit 1; }
	@touch $@

$(STAMP): $(RUNS)
	@echo "Installing the tools for tests into $(VENV), once ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

$(VENV)/docs: $(STAMP)
	@echo "installing MkDocs into $(VENV) ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .mutants .steady
