# Every target sets up what it needs: a virtual environment in .venv, installed again only when pyproject.toml changes. The
# demo needs Headrace and what it depends on; everything else needs the tools and test servers of the extra `dev` too.
# Messages of the set-up go to standard error, so that `make demo | tail -1` is the demo's JSON line and nothing else.

VENV  := .venv
BIN   := $(VENV)/bin
DEMO  := $(VENV)/.ready-demo
READY := $(VENV)/.ready
# The first of these that is 3.11 or newer; `make PYTHON=/path/to/python` puts another one before them.
PYTHONS := $(PYTHON) python3 python3.13 python3.12 python3.11 python3.14 python

.DEFAULT_GOAL := help
.NOTPARALLEL: # two pips in one environment would get in each other's way
.PHONY: help setup demo test soak browser prepared fuzz check bench chaos clean

help: ## show this
	@echo 'Headrace. Each target sets up by itself; the first time takes a few minutes.'
	@echo
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo '  make demo SECONDS=45 RATE=500 SEED=7      stop by itself, choose the traffic'
	@echo '  make test ARGS="tests/unit -k rolling"    some tests only'

setup: $(READY) ## make .venv and install everything, also what only developers need

demo: $(DEMO) ## card fraud in milliseconds, live in this terminal (SECONDS=, RATE=, SEED=)
	@exec $(BIN)/headrace demo $(if $(SECONDS),--seconds $(SECONDS)) $(if $(RATE),--rate $(RATE)) $(if $(SEED),--seed $(SEED)) $(ARGS)

# The JVMs of tests live for seconds to minutes: the optimizing compiler would take two fifths of the CPU and never pay off.
QUICK := -XX:TieredStopAtLevel=1
# Tests wait for brokers and processes as much as they compute: on 2 cores three workers are quicker than two.
# A worker that ends by itself had a test that was stuck or took the JVM with it: xdist would give it to another, again and again.
# Workers must name the tests alike, and some names show a set: hence the fixed seed of hashes.
TESTING := PYTHONHASHSEED=0 SPARK_SUBMIT_OPTS='$(QUICK)' HEADRACE_BROKER_OPTS='$(QUICK)'

test: $(READY) browser prepared ## all tests: unit, Spark, system with a real broker (ARGS= for pytest)
	@$(TESTING) exec $(BIN)/python -m pytest -q --durations=10 $(if $(ARGS),$(ARGS),-m 'not soak' -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0)

soak: $(READY) browser prepared ## the tests that take minutes each, which `make test` leaves out
	@$(TESTING) exec $(BIN)/python -m pytest -q --durations=10 -m soak $(ARGS)

fuzz: $(READY) ## random schemas, values and bytes through contracts and JSON, random streams (EXAMPLES= of each, 300 and 10)
	@HEADRACE_EXAMPLES=$(or $(EXAMPLES),300) $(BIN)/python -m pytest -q tests/spark/test_contract_properties.py tests/spark/test_json_payloads.py
	@HEADRACE_EXAMPLES=$(or $(EXAMPLES),10) exec $(BIN)/python -m pytest -q tests/spark/test_window_properties.py tests/spark/test_rolling_properties.py

# Tests start many JVMs; with this each takes about half the time. It has nothing to do the second time.
prepared: $(READY)
	@$(BIN)/headrace prepare >/dev/null

# The dashboard's tests open it in a real browser. Where this may install one, it does; elsewhere the tests fail and say how.
browser:
	@for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null 2>&1 && exit 0; done; \
	echo 'setup: installing chromium, for the tests of the dashboard' >&2; \
	sudo=; [ "$$(id -u)" = 0 ] || sudo='sudo -n'; \
	{ $$sudo apt-get update -qq && $$sudo apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; } >&2 \
	  || echo 'setup: it could not be installed; do it by hand: sudo apt-get install chromium' >&2

check: $(READY) ## ruff, mypy --strict, import-linter
	@failed=; for tool in 'ruff check' 'ruff format --check' 'mypy --strict' lint-imports; do \
	  echo "== $$tool"; $(BIN)/$$tool || failed=1; \
	done; [ -z "$$failed" ]

bench: $(READY) ## the figures of docs/benchmarks.md, as JSON lines (some minutes, on a quiet machine)
	@exec $(BIN)/python -m bench

chaos: $(READY) ## kill driver, tasks, broker and database for SECONDS= (300) or KILLS= by SEED=, then audit every record
	@$(TESTING) exec $(BIN)/python -m tests.system.faults $(if $(SECONDS),--seconds $(SECONDS)) $(if $(KILLS),--kills $(KILLS)) $(if $(SEED),--seed $(SEED))

clean: ## remove .venv, build output and tool caches (downloaded jars and Kafka data stay: they are outside)
	rm -rf $(VENV) build dist artifacts spark-warehouse .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests examples bench -name __pycache__ -type d -prune -exec rm -rf {} +

$(DEMO): PARTS := .
$(DEMO): TOLD := Headrace and PySpark
$(READY): PARTS := .[dev]
$(READY): TOLD := Headrace, PySpark and the tools

$(DEMO) $(READY): pyproject.toml
	@found=; if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	  for python in $(PYTHONS); do \
	    if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then found=$$python; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo 'Headrace needs Python 3.11 or newer, and none was found.' >&2; \
	    echo '  Fix: install one, or name it: make PYTHON=/path/to/python3.11' >&2; \
	    exit 1; \
	  fi; \
	  echo "setup: making $(VENV) with $$($$found --version)" >&2; \
	  rm -rf $(VENV); \
	  $$found -m venv $(VENV) >&2 || { rm -rf $(VENV); exit 1; }; \
	fi
	@echo 'setup: installing $(TOLD) into $(VENV) (the first time: several hundred MB)' >&2
	@$(call install,$(PARTS))
	@$(BIN)/python -m headrace.jvm.java --check || { \
	  echo 'setup: no Java 17 or newer on this machine, installing one into $(VENV)' >&2; \
	  $(call install,.[java]); \
	}
	@touch $(DEMO) $@

# pip, with its large steps shown as they come. All that it says is in a log, whose end is shown if it fails. A file tells
# that it succeeded: the status of a pipe is that of its end.
install = rm -f $(VENV)/.installed; \
	{ PYTHONUNBUFFERED=1 $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -e '$(1)' \
	  && touch $(VENV)/.installed; } 2>&1 | tee $(VENV)/install.log \
	| while read -r line; do case "$$line" in \
	    (Downloading*' MB)') echo "  $$line";; \
	    ('Building wheel for '*' started') echo "  $${line%: *}";; \
	    ('Installing collected packages'*) echo '  Installing the packages';; \
	  esac; done >&2; \
	if [ ! -f $(VENV)/.installed ]; then \
	  tail -20 $(VENV)/install.log >&2; echo 'setup: pip failed; all that it said is in $(VENV)/install.log' >&2; exit 1; \
	fi
