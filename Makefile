# `make demo` and `make test` install what is missing first.
#
#   make install    .venv from requirements.lock, Java, and the servers that the tests need
#   make test       format, lint, types, import contracts, tests
#   make demo       run a factory, kill parts of it, and audit the result
#   make campaign   the long searches that are not in `make test`
#   make night      everything that searches, on fresh seeds, for HOURS (8) hours; QUICK=1: ten minutes, without the campaign
#   make peers      Apache Flink, DuckDB with Polars, DBOS, Temporal, Restate (needs npm), and Zenoh with NATS, each in an
#                   environment of its own, for the races of `unerring bench pipeline`, `processes` and `channels --against NAME` (docs/races.md)
#   make bench      figures with their goals (BENCH=name for one of them)
#   make pictures   take docs/images/*.png again, and draw trace.svg, from real runs of the factory
#   make site       the documentation as a static site with search and API reference, in build/site
#   make format     format the code
#   make lock       write requirements.lock again from pyproject.toml (UPGRADE=1: to the newest versions)
#   make vulnerabilities   ask OSV for known ones of everything in requirements.lock (needs the network)
#
# VENV=path uses an environment of your own; nothing is installed then. PYTHON=python3.12 chooses the interpreter.

VENV ?= .venv
BENCH ?= channels
WORKERS ?= 2
UPGRADE ?=
HOURS ?= 8
QUICK ?=
SHELL := /bin/sh
.DEFAULT_GOAL := help
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules --no-print-directory

# A worktree tests its own source, whatever the environment has installed; absolute, since tests change directory.
export PYTHONPATH := $(CURDIR)/src
export VENV PYTHON
# Tests and demo start hundreds of processes, which would each compile the package anew where this is set.
export PYTHONDONTWRITEBYTECODE :=

run := "$(VENV)/bin/python" -m

.PHONY: help install install-campaign test lint format lock vulnerabilities demo campaign night peers bench pictures site clean

help:
	@sed -n 's/^#   make/  make/p' Makefile

install:
	@scripts/install

install-campaign:
	@scripts/install campaign

lint: install
	@echo '== format'
	@$(run) ruff format --check --quiet . || { echo 'run: make format'; exit 1; }
	@echo '== lint'
	@$(run) ruff check --quiet .
	@echo '== types'
	@$(run) mypy --no-error-summary
	@echo '== import contracts'
	@scripts/contracts "$(VENV)/bin/python"

test: lint
	@echo '== tests'
	@$(run) pytest -q -n $(WORKERS) --dist loadgroup

format: install
	@$(run) ruff check --quiet --fix-only .
	@$(run) ruff format .

demo: install
	@$(run) unerring demo

campaign: install-campaign
	@$(run) pytest -v -p no:xdist --timeout=7200 tests/campaign
	@$(run) pytest -v -p no:xdist --timeout=7200 -m long

night: $(if $(QUICK),install,install-campaign)
	@$(run) unerring night --fuzz tests/fuzz $(if $(QUICK),--quick,--hours $(HOURS) --tests tests/campaign)

peers: install
	@test -x bench/peers/flink/bin/python || "$(VENV)/bin/python" -m venv bench/peers/flink
	@bench/peers/flink/bin/python -m pip install -q --disable-pip-version-check -r bench/peers/requirements.txt
	@test -x bench/peers/tables/bin/python || "$(VENV)/bin/python" -m venv bench/peers/tables
	@bench/peers/tables/bin/python -m pip install -q --disable-pip-version-check -r bench/peers/requirements-tables.txt
	@test -x bench/peers/dbos/bin/python || "$(VENV)/bin/python" -m venv bench/peers/dbos
	@bench/peers/dbos/bin/python -m pip install -q --disable-pip-version-check -r bench/peers/requirements-dbos.txt
	@test -x bench/peers/temporal/bin/python || "$(VENV)/bin/python" -m venv bench/peers/temporal
	@bench/peers/temporal/bin/python -m pip install -q --disable-pip-version-check -r bench/peers/requirements-temporal.txt
	@test -x bench/peers/restate/bin/python || "$(VENV)/bin/python" -m venv bench/peers/restate
	@bench/peers/restate/bin/python -m pip install -q --disable-pip-version-check -r bench/peers/requirements-restate.txt
	@npm install --prefix bench/peers/restate --silent --no-audit --no-fund @restatedev/restate-server@1.7.12
	@test -x bench/peers/services/bin/python || "$(VENV)/bin/python" -m venv bench/peers/services
	@bench/peers/services/bin/python -m pip install -q --disable-pip-version-check -r bench/peers/requirements-services.txt

bench: install
	@$(run) unerring bench $(BENCH)

pictures: install
	@"$(VENV)/bin/python" scripts/pictures docs/images
	@"$(VENV)/bin/python" scripts/trace_picture.py docs/images

site: install
	@scripts/website/build "$(VENV)/bin/python"

lock: install
	@scripts/lock "$(VENV)/bin/python" $(if $(UPGRADE),--upgrade)

vulnerabilities: install
	@"$(VENV)/bin/python" scripts/sbom.py vulnerabilities

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
