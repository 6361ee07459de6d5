# PocketMQ: few verbs, the same in CI. Needs Python 3.11+ and make; everything else is installed into .venv.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
SHELL   = /bin/sh
# JOBS, processes of pytest: the tests wait for a fifth of their time, so two cores have work for three.

.PHONY: help run cluster setup test deep soak fuzz check dist smoke scenarios torture partitions blind-doctor sim interop bench bench-quick docs docs-tables clean
help:           ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "PocketMQ needs Python 3.11 or later; say which: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "python -m venv failed; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 2; }

$(VENV)/.runtime: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[arrow,plots,dev]'
	@touch $@ $(VENV)/.runtime

$(VENV)/.bench: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[arrow,bench,plots,dev]'
	@touch $@ $(VENV)/.dev $(VENV)/.runtime

$(VENV)/.fuzz: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[arrow,plots,dev,fuzz]'
	@touch $@ $(VENV)/.dev $(VENV)/.runtime

run: $(VENV)/.runtime   ## name server and broker in one process (ARGS="--data-dir D ...")
	exec $(BIN)/pocketmq standalone $(ARGS)

cluster: $(VENV)/.runtime ## name server, synchronous pair, second master (ARGS="--broker-port 10911 ...")
	exec $(BIN)/pocketmq cluster $(ARGS)

setup: $(VENV)/.dev     ## everything a developer needs

test: JOBS ?= 3
test: $(VENV)/.dev      ## the tests, six to seven minutes on two cores (ARGS="tests/store -k recovery" JOBS=0)
	@PYTHONPATH=src $(BIN)/python -m tests.java
	POCKETMQ_TESTS=fast $(BIN)/python -m pytest -n $(JOBS) $(ARGS)

deep: JOBS ?= 2
deep: $(VENV)/.dev      ## the long tests, and twenty times the examples and lives; ten minutes on two cores (ARGS="-k lives")
	@PYTHONPATH=src $(BIN)/python -m tests.java
	POCKETMQ_TESTS=soak $(BIN)/python -m pytest -n $(JOBS) -m soak $(ARGS)

check: $(VENV)/.dev     ## ruff, mypy --strict, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=src $(BIN)/lint-imports

scenarios: $(VENV)/.dev ## every incident in real processes, and what else takes long
	@PYTHONPATH=src $(BIN)/python -m tests.java
	$(BIN)/python -m pytest -m scenario $(ARGS)

interop: $(VENV)/.dev   ## beside RocketMQ's own clients, tools and servers; needs Java and Maven (ARGS="-k java")
	$(BIN)/python -m pytest -m interop tests/interop $(ARGS)

soak: MINUTES ?= 30
soak: $(VENV)/.dev      ## a pair and its clients under a mixed load, and whether anything grows (MINUTES=30 ARGS="--trace")
	PYTHONPATH=src $(BIN)/python -m tests.soak --minutes $(MINUTES) $(ARGS)

fuzz: MINUTES ?= 10
fuzz: $(VENV)/.fuzz     ## decoders and store files under atheris; CPython 3.11 or 3.12 (MINUTES=10 ARGS="--only sql,store_pool --jobs 4")
	PYTHONPATH=src $(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(ARGS)

torture: $(VENV)/.dev   ## crashes, bit flips and kill -9 for an hour (ARGS="--minutes 5")
	$(BIN)/python -m tests.torture $(ARGS)

partitions: $(VENV)/.dev ## cut links, frozen, killed and emptied nodes under load, in all modes (ARGS="--rounds 100 --seed 1")
	$(BIN)/python -m tests.e2e $(ARGS)

blind-doctor: ROUNDS ?= 20
blind-doctor: SEED ?= 1
blind-doctor: $(VENV)/.dev ## faults made from outside in real clusters: does the doctor name them? (ROUNDS=20 SEED=1 ARGS="--faults slave-killed")
	PYTHONPATH=src $(BIN)/python -m tests.cli.doctor.blind --rounds $(ROUNDS) --seed $(SEED) $(ARGS)

bench: $(VENV)/.bench   ## speed beside the peers and the machine's floor, 35 minutes (ARGS="one_by_one --peers redis,pocketmq")
	$(BIN)/python -m bench $(ARGS)

bench-quick: $(VENV)/.bench ## the same in less than 5 minutes, rougher
	$(BIN)/python -m bench --quick $(ARGS)

docs: $(VENV)/.dev      ## the site of docs/, with search and the API reference, in build/site
	PYTHONPATH=src $(BIN)/python -m sphinx -q -W --keep-going -b html -c docs/site docs build/site
	@echo open build/site/index.html

docs-tables: $(VENV)/.dev ## write the tables that are made from the code (request codes, refusals, settings, commands, …) into docs/
	PYTHONPATH=src $(BIN)/python -m docs.tables

sim: SEED ?= 0
sim: RUNS ?= 100
sim: MINUTES ?= 0
sim: $(VENV)/.dev       ## whole clusters on virtual time, one for each seed (SEED=1 RUNS=100 MINUTES=10; SEED=0: new ones)
	PYTHONPATH=src $(BIN)/python -m tests.cluster_sim --seed $(SEED) --runs $(RUNS) --minutes $(MINUTES) $(ARGS)

dist: $(VENV)/.dev      ## wheel and source distribution in dist/
	rm -rf build dist src/*.egg-info
	$(BIN)/python -m build --no-isolation --outdir dist .

smoke: dist             ## install the wheel alone on each Python 3.11 to 3.14 of this machine, and use it
	PYTHONPATH=src $(BIN)/python -m tests.install.smoke dist/*.whl $(ARGS)

clean:                  ## remove what make made
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
