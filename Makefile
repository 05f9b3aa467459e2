# `make demo` and `make test`: each sets up what it needs in .venv, and is quick the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST ?= -n 2

# Run a command: without a word if it succeeds, with all of its output if it fails.
quietly = @output=$$($(1) 2>&1) || { status=$$?; printf '%s\n' "$$output"; exit $$status; }

.PHONY: demo test test-slow style types imports tests docs bench format clean

demo: $(VENV)/installed
	@$(BIN)/regard demo

test: style types imports tests

style: $(VENV)/installed-dev
	@echo "== style"
	$(call quietly,$(BIN)/ruff check .)
	$(call quietly,$(BIN)/ruff format --check .)

types: $(VENV)/installed-dev
	@echo "== types"
	$(call quietly,$(BIN)/mypy)

imports: $(VENV)/installed-dev
	@echo "== import rules"
	$(call quietly,$(BIN)/lint-imports --no-cache)

tests: $(VENV)/installed-dev
	@echo "== tests (about a quarter of an hour)"
	@output=$$(OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q $(PYTEST) 2>&1) || \
		{ status=$$?; printf '%s\n' "$$output"; exit $$status; }; printf '%s\n' "$$output" | tail -n 1

# What takes more than ten seconds by nature: long runs, real weights, many random cases.
test-slow: $(VENV)/installed-dev
	@echo "== slow tests"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q $(PYTEST) -m slow

docs: $(VENV)/installed
	@$(BIN)/python docs/make_families_page.py
	@$(BIN)/python docs/make_figures.py
	@$(BIN)/python docs/make_reference_pages.py
	@$(BIN)/python docs/make_benchmarks_page.py

# The benchmarks that have no rows yet in benchmarks/results, or the named ones: make bench ROWS="core load".
bench: $(VENV)/installed-bench
	@$(BIN)/python benchmarks/run_benchmarks.py $(ROWS)
	@$(BIN)/python docs/make_benchmarks_page.py

format: $(VENV)/installed-dev
	$(call quietly,$(BIN)/ruff check --fix .)
	$(call quietly,$(BIN)/ruff format .)

# torch comes first and pinned: an unpinned one would bring gigabytes of GPU libraries.
$(VENV)/installed: pyproject.toml constraints.txt
	@echo "== setting up $(VENV) (once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(call quietly,$(PIP) install --constraint constraints.txt torch)
	$(call quietly,$(PIP) install --constraint constraints.txt --editable .)
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	@echo "== adding the tools of the tests (once)"
	$(call quietly,$(PIP) install --constraint constraints.txt --editable ".[dev]")
	@touch $@

$(VENV)/installed-bench: $(VENV)/installed
	@echo "== adding the peers of the benchmarks (once)"
	$(call quietly,$(PIP) install --constraint constraints.txt --editable ".[bench]")
	@touch $@

clean:
	@rm -rf $(VENV)
