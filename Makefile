# aiokq: each target installs its requirements in .venv and .cache of this checkout.
# On a fresh Debian with Python 3.11, gcc and make: `make run`, `make test`.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
CACHE := .cache
KAFKA_LIBS := $(CACHE)/kafka/libs
KAFKA_OLD_CLIENTS := 3.9.1
# Earlier releases that must open the directories that aiokq makes.
KAFKA_EARLIER := 4.0.0 4.1.1

# Address that `make run` connects to; empty: an embedded broker as a process of its own.
BOOTSTRAP ?=
# Number of rows of the flights file that `make run` publishes; empty: all 336,776.
LIMIT ?=

# Byte code is written even where the environment forbids it: without it a broker starts half as
# fast, and each process of each tier of tests rewrites the asserts of all its tests.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help
help: ## Show the targets
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

# --- environment ---------------------------------------------------------------------------

.PHONY: prerequisites
prerequisites:
	@PYTHON=$(PYTHON) bash tools/prerequisites.sh

$(CACHE)/stamps/venv: pyproject.toml tools/prerequisites.sh
	@PYTHON=$(PYTHON) bash tools/prerequisites.sh
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@echo "aiokq: installing the development tools in $(VENV) ..."
	@$(PY) -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1' 'setuptools>=77'
	@$(PY) -m pip install --quiet --disable-pip-version-check --group dev --group peers
	@mkdir -p $(@D) && touch $@

# The compiled core is rebuilt when its sources change, so that no stale code runs.
$(CACHE)/stamps/build: $(CACHE)/stamps/venv setup.py $(shell find aiokq/fastpath -name '*.py' -o -name '*.pxd' -o -name '*.h')
	@echo "aiokq: compiling the core, which takes minutes ..."
	@PYTHONWARNINGS=ignore bash tools/with_progress.sh $(PY) -m pip install --quiet --disable-pip-version-check --no-build-isolation --editable '.[arrow,spark]'
	@$(PY) -m compileall -q aiokq
	@$(PY) -c 'from aiokq import fastpath; print("aiokq: compiled core" if fastpath.COMPILED else "aiokq: PURE PYTHON core (no compiler?): correct, but several times slower")'
	@mkdir -p $(@D) && touch $@

$(CACHE)/stamps/bench: $(CACHE)/stamps/build
	@$(PY) -m pip install --quiet --disable-pip-version-check --group bench
	@mkdir -p $(@D) && touch $@

# An installation as users have it: the wheel in an environment of its own.
$(CACHE)/stamps/wheel: $(CACHE)/stamps/build $(shell find aiokq -name '*.py' -o -name '*.pyi' -o -name '*.pxd' -o -name '*.h')
	@echo "aiokq: building the wheel, and installing it in $(CACHE)/wheel ..."
	@bash tools/with_progress.sh $(PY) tools/install_wheel.py $(CACHE)/wheel
	@mkdir -p $(@D) && touch $@

$(CACHE)/stamps/programs:
	@bash tools/install_debian.sh kcat kcat
	@# The TLS tests make their certificates with it.
	@bash tools/install_debian.sh openssl openssl
	@# One of the languages in examples/gateway.
	@bash tools/install_debian.sh node nodejs
	@# The gateway's status page is tested in it.
	@bash tools/install_debian.sh chromium chromium
	@# Its tools check the gateway's units and pass sockets to a gateway; they need no running systemd.
	@bash tools/install_debian.sh systemd-socket-activate systemd
	@# GSSAPI is tested with a key distribution center of MIT Kerberos; the headers build its package.
	@PATH="$$PATH:/usr/sbin" bash tools/install_debian.sh krb5kdc krb5-kdc krb5-admin-server krb5-user
	@bash tools/install_debian.sh krb5-config libkrb5-dev
	@mkdir -p $(@D) && touch $@

# The extra `gssapi`, which is compiled. A failure is no error: the tests of Kerberos are skipped.
$(CACHE)/stamps/kerberos: $(CACHE)/stamps/build $(CACHE)/stamps/programs
	@$(PY) -m pip install --quiet --disable-pip-version-check 'gssapi>=1.8' || \
		echo "aiokq: could not build the package gssapi: Kerberos is not tested" >&2
	@mkdir -p $(@D) && touch $@

# Spark needs Java 17 or newer: the installed one, or Debian's.
.PHONY: java
java:
	@bash tools/find_java.sh

.PHONY: setup
setup: $(CACHE)/stamps/build ## Make .venv with aiokq (compiled) and the development tools

# Apache Kafka and its Java tools, the peers of the interop tests. A failed download is no error:
# the tests that need them are skipped with a warning.
.PHONY: kafka
kafka: ## Fetch Apache Kafka 4.2 from Maven Central into .cache (the interop tests' peer)
	@KAFKA_OLD_CLIENTS=$(KAFKA_OLD_CLIENTS) KAFKA_EARLIER="$(KAFKA_EARLIER)" bash tools/fetch_kafka.sh $(KAFKA_LIBS)
	@$(PYTHON) -m tests.peers.class_archive

.PHONY: connector
connector: java ## Fetch Spark's own Kafka connector (the Spark tests' peer) from Maven Central into .cache
	@bash tools/fetch_connector.sh $(CACHE)/connector

# A client in Go, another peer of the interop tests.
.PHONY: go-client
go-client: ## Build the interop tests' client of franz-go (Go) into .cache
	@bash tools/build_go_client.sh $(CACHE)/go/client

# --- work ----------------------------------------------------------------------------------

.PHONY: run
run: $(CACHE)/stamps/build java ## Run the main job with real data on the embedded broker, then Spark (BOOTSTRAP=host:port: on another Kafka; LIMIT=rows)
	@$(PY) -m examples.flights --cache $(CACHE)/flights $(if $(BOOTSTRAP),--bootstrap-servers $(BOOTSTRAP)) $(if $(LIMIT),--limit $(LIMIT))

# The parts wait for downloads and compilers, so they take half as long with `make -j3`.
.PHONY: peers
peers: $(CACHE)/stamps/wheel $(CACHE)/stamps/programs $(CACHE)/stamps/kerberos kafka connector go-client ## Fetch and build all that the tests need

.PHONY: test
test: peers ## Run a smoke of every tier of tests
	@$(PY) tools/run_tests.py smoke

# Directory with the sources of Dory, for `make interop DORY=DIR`: its own programs write to the
# gateway. Without it, programs of ours stand for them.
DORY ?=

.PHONY: interop
interop: peers ## Run every test against other makes: Apache Kafka, Java, librdkafka, aiokafka, kafka-python, franz-go, kcat (DORY=DIR: Dory's programs)
	@DORY="$(DORY)" $(PY) tools/run_tests.py interop

# For `make torture FAULTS=misuse`, which runs only random faults, limits and misuse under load, and
# FAULTS=fuzz, which only fuzzes all listeners, clients and the gateway.
FAULTS ?=
HOURS ?= 2
SEED ?=

.PHONY: torture
ifeq ($(FAULTS),)
torture: peers ## Run the long tests: many seeds, long fuzzing, full matrices (FAULTS=misuse HOURS=2 [SEED=n]: random faults and misuse under load; FAULTS=fuzz: fuzzing)
	@$(PY) tools/run_tests.py torture
else
torture: $(CACHE)/stamps/build
	@$(PY) -m tests.fault.$(FAULTS) --hours $(HOURS) $(if $(SEED),--seed $(SEED))
endif

.PHONY: lint
lint: $(CACHE)/stamps/build ## Check format, style, types and layers
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(PY) tools/generate_settings.py --check
	@$(PY) tools/generate_error_codes.py --check
	@$(PY) tools/generate_messages.py --exports --check
	@$(PY) tools/generate_docs.py --check

.PHONY: format
format: $(CACHE)/stamps/venv ## Format the code
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

.PHONY: bench
bench: $(CACHE)/stamps/bench kafka connector ## Measure aiokq beside its peers in one run (tables and plots in benchmarks/results)
	@$(PY) -m benchmarks $(BENCH)

.PHONY: docs
docs: $(CACHE)/stamps/build ## Regenerate docs/reference from the code, and run the code in docs/guides and README
	@$(PY) tools/generate_docs.py
	@$(PY) -m pytest -q tests/examples/test_guides.py tests/unit/test_documentation.py

.PHONY: clean
clean: ## Remove the files that the targets created
	rm -rf $(VENV) $(CACHE) build dist *.egg-info $(shell find aiokq/fastpath -name '*.so')
