# Two commands are all a newcomer needs: `make demo` and `make test`.
# Everything runs in .venv, which is made once and refreshed only when pyproject.toml changes.

PYTHON ?= python3
BIN := .venv/bin
# What `make release-check` runs the tests on: the versions of the classifiers must be here, others are run if they are.
PYTHONS := 3.11 3.12 3.13 3.14

# The tests start hundreds of interpreters; without compiled files each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test check lint docs bench lab lab-full chaos wheel dist release-test release-check release-tag-check clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

setup: .venv/.ready  ## make .venv with everything but the benchmark's peers

.venv/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "headgate needs Python 3.11 or newer; try: make PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "setting up .venv ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[all,test,check]'
	@touch $@

.venv/.bench: .venv/.ready
	@echo "installing the peers ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	@touch $@

.venv/.browser: .venv/.ready
	@if ! command -v chromium >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing chromium, to test the page in ..."; \
		(apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium) >/dev/null 2>&1 || true; \
	fi
	@if command -v chromium >/dev/null; then touch $@; \
	else echo "!!! NO BROWSER, SO THE PAGE IS NOT TESTED. As root: apt-get install chromium"; fi

.venv/.heavy: .venv/.ready
	@echo "installing Scrapy, Celery, Ray and Spark ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[heavy]'
	@if ! command -v java >/dev/null; then echo "installing a Java runtime, for Spark ..."; \
		sudo=$$(test "$$(id -u)" = 0 || echo "sudo -n"); \
		($$sudo apt-get update -qq && $$sudo apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless) >/dev/null 2>&1 || true; \
	fi
	@if command -v java >/dev/null; then touch $@; \
	else echo "!!! NO JAVA, SO SPARK IS NOT TESTED. As root: apt-get install openjdk-17-jre-headless"; fi

.venv/.docs: .venv/.ready
	@echo "installing mkdocs ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@

# Each worker would compile every module that is not compiled yet: eight times the same work on a new machine.
.venv/.compiled: .venv/.ready
	@echo "compiling the tests ..."
	@$(BIN)/python -m pytest -q --collect-only >/dev/null
	@touch $@

demo: .venv/.ready  ## a mock API with hidden quotas for three keys, and the limiter that finds them
	@$(BIN)/headgate demo

# Four workers for each core: half of the time a test waits for a socket, a process or a browser. `make check` runs
# beside them and is reported after them. Which lines no test reaches: `make test`, then `.venv/bin/coverage report`.
test: .venv/.compiled .venv/.browser  ## everything that must hold: lint, types, layers, tests, coverage
	@workers=$$($(BIN)/python -c 'import os; print(4 * (os.cpu_count() or 1))'); \
	said=$$(mktemp); trap 'rm -f "$$said"' EXIT; \
	$(MAKE) --no-print-directory check >"$$said" 2>&1 & check=$$!; \
	$(BIN)/python -m pytest -q --tb=short -n "$$workers" --dist worksteal --cov --cov-report=; tests=$$?; \
	wait $$check; check=$$?; \
	echo "make check:"; cat "$$said"; \
	exit $$((tests || check))

check: lint  ## ruff, import-linter, mypy --strict
	@$(BIN)/mypy

lint: .venv/.ready
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache

docs: .venv/.docs  ## build the manual into site/; fails on a broken link
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# First what can run side by side, a worker for each core; then, one by one, what real time judges.
chaos: .venv/.heavy .venv/.browser  ## the long and hostile suites: a million inputs, a million keys
	@$(BIN)/python -m pytest -m "chaos and not alone" -n auto --dist worksteal; beside=$$?; \
	$(BIN)/python -m pytest -m "chaos and alone"; exit $$((beside || $$?))

bench: .venv/.bench  ## us beside thirteen peers in one run; rewrites bench/RESULTS.md
	@$(BIN)/python -m bench

lab: .venv/.ready  ## every scenario, every strategy, in virtual time (15 min); rewrites bench/controllers.md
	@$(BIN)/python -m bench.lab

lab-full: .venv/.ready  ## the same over 20 seeds throughout, and the scale table (an hour)
	@$(BIN)/python -m bench.lab --full

wheel: .venv/.ready  ## build the wheel into dist/
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w dist .

dist: .venv/.release  ## the wheel and the source archive, into dist/
	@rm -rf dist && $(BIN)/hatchling build -d dist

.venv/.release: .venv/.ready
	@echo "installing pipx, pre-commit, twine and uv ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[release]'
	@for tool in prometheus zsh fish; do command -v $$tool >/dev/null || { echo "installing $$tool ..."; \
		sudo=$$(test "$$(id -u)" = 0 || echo "sudo -n"); \
		($$sudo apt-get update -qq && $$sudo apt-get install -y -qq --no-install-recommends $$tool) >/dev/null 2>&1 || \
		echo "!!! NO $$tool. As root: apt-get install $$tool"; }; done
	@touch $@

release-test: dist  ## the wheel with each extra, pipx, uvx, the archive, a plugin, shells, Prometheus, pre-commit
	@$(BIN)/python -m pytest release

release-check: release-test docs  ## all that must hold before a release: release-test, docs, and the tests on every version
	@$(BIN)/python -m release.versions $(PYTHONS)

release-tag-check:
	@test "$(TAG)" = "v$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' src/headgate/_version.py)" || { echo "the tag $(TAG) is not the version"; exit 1; }
	@grep -q "^## $${TAG#v} " CHANGELOG.md && ! grep -q "^## $${TAG#v} (unreleased)" CHANGELOG.md || { echo "CHANGELOG.md has no date for $(TAG)"; exit 1; }

clean:  ## remove everything that was made
	rm -rf .venv .release dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .artefacts headgate-demo*.svg
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
