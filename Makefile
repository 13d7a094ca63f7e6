# make run | demo | test | check | bench   each sets up what it needs first
# make test-clients   the official client for Node and the Codex CLI against a running server; needs npm to install them
# make setup    the virtual environment .venv, from requirements.lock; nothing is done when it is up to date
# make lock     requirements.lock anew, after a change of dependencies in pyproject.toml (needs uv)

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Another Python: make setup PYTHON=python3.12
PYTHON ?= python3
# Relative and started as `-m`: a path with a space needs no care that way.
VENV_PYTHON := .venv/bin/python
PIP := $(VENV_PYTHON) -m pip --disable-pip-version-check --no-input --quiet
STAMP := .venv/.outlast-setup
NODE := tests/clients/node
NODE_STAMP := $(NODE)/node_modules/.outlast-setup
SOURCES := outlast workflows activities api worker.py tests scripts benchmarks

# Of the user's pip settings only those that say where packages come from may count here.
unexport PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT PIP_CONSTRAINT PIP_BUILD_CONSTRAINT
unexport PIP_REQUIREMENT PIP_EDITABLE PIP_NO_BINARY PIP_ONLY_BINARY PIP_REQUIRE_HASHES PIP_DRY_RUN PIP_REPORT PIP_PYTHON

# Tests and the demo never reach a real model server.
WITHOUT_OPENAI := unset $$(compgen -e | grep '^OPENAI_' || true);

.PHONY: help setup run test test-clients check demo bench lock clean

help:
	@grep -E '^# make' Makefile | sed 's/^# //'

setup: $(STAMP)
	@:

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Outlast needs Python 3.11 or newer: make setup PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "Python's venv module is missing. Install it, then run make again:" >&2; \
		echo "    sudo apt-get install python3-venv" >&2; exit 1; }
	@test -x $(VENV_PYTHON) || { echo "setup: creating .venv"; $(PYTHON) -m venv .venv; }
	@echo "setup: installing the packages of requirements.lock, a minute or two the first time"
	@cache=; test -w "$${HOME:-}" || cache=--no-cache-dir; $(PIP) install --no-user $$cache --progress-bar off \
		--require-hashes --no-deps -r requirements.lock
	@echo "setup: installing Outlast itself"
	@$(PIP) install --no-user --no-cache-dir --no-index --no-deps --no-build-isolation -e .
	@touch $(STAMP)
	@echo "setup: done"

run: setup
	@exec .venv/bin/outlast dev

test: setup
	@$(WITHOUT_OPENAI) exec $(VENV_PYTHON) -m pytest -n 2 --dist loadfile

# Each file is one worker's: its server is shared by the file's tests.
test-clients: setup $(NODE_STAMP)
	@$(WITHOUT_OPENAI) exec $(VENV_PYTHON) -m pytest -vv -n 2 --dist loadfile $(wildcard tests/clients/drive_*.py)

$(NODE_STAMP): $(NODE)/package.json $(NODE)/package-lock.json
	@for program in node npm; do command -v $$program >/dev/null || { \
		echo "make test-clients needs $$program, which is not here. Install it, then run it again:" >&2; \
		echo "    sudo apt-get install nodejs npm" >&2; exit 1; }; done
	@echo "test-clients: installing the packages of $(NODE)/package-lock.json, a minute the first time"
	@cd $(NODE) && npm ci --silent
	@touch $(NODE_STAMP)

check: setup
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m ruff format --check .
	$(VENV_PYTHON) -m mypy
	$(VENV_PYTHON) -c "import importlinter.cli as cli; cli.lint_imports_command()"
	$(VENV_PYTHON) scripts/check_sizes.py $(wildcard $(SOURCES))
	$(VENV_PYTHON) -m codespell_lib $(wildcard $(SOURCES) *.md docs examples)

demo: setup
	@$(WITHOUT_OPENAI) exec $(VENV_PYTHON) -m outlast.demo

bench: setup
	@$(WITHOUT_OPENAI) exec $(VENV_PYTHON) -m benchmarks

lock:
	uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --custom-compile-command "make lock" --quiet --output-file requirements.lock

clean:
	rm -rf .venv build *.egg-info $(NODE)/node_modules
