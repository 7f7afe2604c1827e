# `make up` and `make test` set the machine up first; nothing has to be installed by hand but Python, Go and make.

PYTHON := $(or $(shell command -v python3.11 || command -v python3),$(error install Python (apt-get install python3)))
STACK = "$$($(PYTHON) -m scripts.toolchain python)"
TESTS = $(STACK) -m pytest
# TorchX needs an older urllib3 than the program, whose bundle the tests make: its scheduler's tests run in an environment of their own.
TORCHX = "$$($(PYTHON) -m scripts.toolchain python torchx)"
TESTS_OF_TORCHX = $(TORCHX) -m pytest packages/torchx/tests
TESTS_OF_MACHINE = $(addprefix packages/localcloud/tests/,host test_cleanup.py test_cli.py)
TWO_AT_A_TIME = -n 2 --dist loadfile --no-loadscope-reorder
# A stack waits for a third of the time: a third process uses what two of them leave of the cores.
WITH_STACKS = -n 3 --dist loadfile --no-loadscope-reorder
# A fresh clone's type check would otherwise read torch's and boto3's sources again.
export MYPY_CACHE_DIR ?= $(or $(TIDEWATER_CACHE),$(HOME)/.cache/tidewater)/mypy
.DEFAULT_GOAL := help
.PHONY: help machine install install-tests monitoring torchx up down test check unit e2e test-localcloud test-elasticdl test-torchx soak soak-v2 lint format bench bench-elastic bench-controller bench-nodes bench-elasticdl bench-membership gpu

help: ## this list
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /  make \1\t/' | expand -t 24

machine: ## check that this machine has what the set-up and the one-machine cloud need (seconds)
	@$(PYTHON) -m scripts.toolchain check

install: ## set this machine up: tools, Python packages, the nodes' image (20 minutes or more at first, then nothing)
	@$(PYTHON) -m scripts.toolchain install

install-tests: ## set up what the tests need in addition: Prometheus, TorchX's environment
	@$(PYTHON) -m scripts.toolchain install-tests

monitoring: ## build Prometheus too, for `monitoring: prometheus` (before `make up`)
	@$(PYTHON) -m scripts.toolchain monitoring

torchx: install ## make TorchX's environment, for the command `torchx` that `activate` gives
	@$(PYTHON) -m scripts.toolchain torchx

up: machine install ## start the one-machine cloud, deploy the stack on it, wait until it trains
	@$(STACK) -m scripts.up

down: install ## destroy the stack and stop the one-machine cloud
	@$(STACK) -m scripts.down

lint: install ## ruff and strict mypy
	@$(STACK) -m ruff check .
	@$(STACK) -m ruff format --check .
	@$(STACK) -m mypy

format: install ## put the code into ruff's format
	@$(STACK) -m ruff check --fix .
	@$(STACK) -m ruff format .

test: machine install-tests lint ## every check and every test but those of `make soak`: those of TorchX, then two stacks, the quick tests and the others, three modules at a time
	@$(TESTS_OF_TORCHX) $(TWO_AT_A_TIME) --junitxml=build/tests-torchx.xml
	@$(TESTS) $(WITH_STACKS) --junitxml=build/tests.xml; status=$$?; $(STACK) -m tests.suite.selection record; exit $$status

check: machine install-tests lint ## every check, and the tests that a change since the last good run on this machine can reach
	@$(STACK) -m tests.suite.selection check $(WITH_STACKS)

unit: install-tests ## the tests that need neither root nor minutes
	@$(TESTS_OF_TORCHX) $(TWO_AT_A_TIME) -m "not e2e and not soak"
	@$(TESTS) $(TWO_AT_A_TIME) -m "not e2e and not soak"

e2e: machine install-tests ## the tests that start real processes
	@$(TESTS_OF_TORCHX) $(TWO_AT_A_TIME) -m "e2e and not soak"
	@$(TESTS) $(WITH_STACKS) -m "e2e and not soak"

test-localcloud: install-tests ## the tests of localcloud alone
	@$(TESTS) $(TWO_AT_A_TIME) packages/localcloud/tests

test-elasticdl: install-tests ## the tests of ElasticDL alone, and its tutorial on a stack
	@$(TESTS) $(TWO_AT_A_TIME) packages/elasticdl/tests tests/e2e/nodegroup/with_elasticdl

test-torchx: install-tests ## the tests of TorchX's scheduler alone, and its session on a stack
	@$(TESTS_OF_TORCHX) $(TWO_AT_A_TIME)
	@$(TESTS) $(TWO_AT_A_TIME) tests/e2e/nodegroup/with_torchx

soak: install-tests ## what only takes long: a hundred schedules of faults on each kind of group, tests marked `soak`, new random examples
	@$(PYTHON) -m scripts.toolchain previous
	@TIDEWATER_SCHEDULES=0:100 $(TESTS) tests/elastic/schedules/test_schedules.py tests/elastic/sharded/test_schedules.py
	@TIDEWATER_ELASTICDL_SCHEDULES=0:50 $(TESTS) packages/elasticdl/tests/chaos
	@$(TESTS) -m soak
	@$(TESTS) -m hypothesis --hypothesis-profile="new examples"

soak-v2: install ## localcloud's tests of the machine it runs on, on Debian's kernel with cgroup v2 only, in qemu
	@$(PYTHON) -m scripts.virtual_machine $(TESTS) -n 0 $(TESTS_OF_MACHINE)

bench: install ## time what a user waits for; rows go to benchmarks/out/ (ARGS="--plan" prints how long it takes)
	@$(STACK) -m benchmarks $(ARGS)

bench-elastic: install ## what a lost worker costs, compared with torchrun and torchft (ARGS="--plan" prints how long it takes)
	@$(PYTHON) -m scripts.toolchain bench
	@$(STACK) -m benchmarks.elastic $(ARGS)

bench-controller: install ## what a thousand jobs cost the controller, compared with Kubeflow's training-operator (ARGS="--plan")
	@$(PYTHON) -m scripts.toolchain bench-controller
	@$(STACK) -m benchmarks.controller $(ARGS)

bench-nodes: install ## how long a worker waits for its node, from Karpenter and from a node group (ARGS="--plan")
	@$(STACK) -m benchmarks.nodes $(ARGS)

bench-elasticdl: install ## records per second of workers and parameter servers, compared with one process and all-reduce (ARGS="--plan")
	@$(STACK) -m benchmarks.elasticdl $(ARGS)

bench-membership: install ## what a change of the membership costs as a job grows, with simulated members (ARGS="--plan")
	@$(STACK) -m benchmarks.membership $(ARGS)

gpu: ## every check that one GPU allows, in ten minutes; installs nothing (PYTHON=python3 ARGS="--etcd FILE")
	@$(PYTHON) -m benchmarks.gpu $(ARGS)
