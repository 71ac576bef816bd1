# Every target sets up what it needs. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

PYTHON ?= python3
GO ?= go
BIN := .venv/bin
PIP := -m pip --disable-pip-version-check --quiet install --require-hashes --no-deps --only-binary :all:
NATIVE := $(wildcard src/railwright/native/*.c src/railwright/native/*.h)
DEBIAN_PACKAGES := g++ libibverbs-dev fio chromium chromium-driver etcd-server \
	frr openvswitch-switch ethtool iperf3 nftables iproute2 iputils-ping procps openssh-server qemu-user-static \
	slurmctld slurmd slurm-client munge libpmix-dev openmpi-bin \
	protobuf-compiler busybox-static cpio debootstrap e2fsprogs kmod xz-utils zstd
# Tests start thousands of interpreters: what one compiled, the others read, also where the environment keeps them from it.
unexport PYTHONDONTWRITEBYTECODE
# Daemons that these packages would start; a lab starts its own. `ssh` is matched by openssh-server, where it was missing.
SERVICES := frr openvswitch-switch slurmctld slurmd munge ssh

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

.PHONY: setup
setup: .venv/ready ## Create .venv with railwright, its timed loops and NIXL

.venv/ready: requirements/base.txt requirements/build.txt pyproject.toml hatch_build.py $(NATIVE) src/railwright/verbs/nixl.requirements.txt
	@command -v cc >/dev/null || { echo "a C compiler is needed: apt-get install gcc"; exit 1; }
	@$(PYTHON) -c 'import sys, venv, ensurepip; assert sys.version_info >= (3, 10)' || \
		{ echo "Python 3.10 or later with its venv module is needed: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python $(PIP) -r requirements/build.txt -r requirements/base.txt
	$(BIN)/python -m pip --disable-pip-version-check --quiet install --no-deps --no-build-isolation --editable .
	$(BIN)/railwright setup nixl
	@touch $@

.PHONY: prove
prove: setup ## Measure this machine: report on the terminal, out/results.jsonl, out/report.html
	@# Status 1 (something is slow) and 3 (something could not be judged) are answers, not failures of make.
	$(BIN)/railwright prove || { status=$$?; echo "railwright prove ended with exit status $$status"; [ $$status -eq 1 ] || [ $$status -eq 3 ]; }

.PHONY: quick
quick: .venv/dev-ready ## Everything pure, on all cores: run it after each change
	@command -v $(GO) >/dev/null || { echo "Go is needed for node/: the version is in node/go.mod"; exit 1; }
	@mkdir -p .cache
	@# Those of Go wait half of their time, for disks and for each other: they are beside Python's.
	@(cd node && RAILWRIGHT_TEST_PURE=1 exec $(GO) test -parallel 8 ./...) >.cache/quick-go.log 2>&1 & go=$$!; \
	trap 'kill $$go 2>/dev/null || true' EXIT; python=0; \
	$(BIN)/python -m pytest -m "not machine" -n auto || python=$$?; \
	wait $$go && go=0 || go=$$?; cat .cache/quick-go.log; trap - EXIT; [ "$$python$$go" = 00 ]

.PHONY: test
test: ## Set up everything and run all tests: what .ci/run calls
	@$(MAKE) --no-print-directory -j 3 test-deps
	scripts/test

# Two workers for each core and one more: the tests of a machine wait for launches and labs half of their time.
# Files are taken in the order of tests/tiers.py, the longest first.
WORKERS := --dist loadfile --no-loadscope-reorder --tx "$$((2 * $$(nproc) + 1))*popen//python=scripts/test-worker"
.PHONY: test-machine
test-machine: test-deps ## The Python tests that start processes: MPI, labs, stand-ins, a browser
	$(BIN)/python -m pytest -m machine $(WORKERS)

.PHONY: test-long
test-long: test-deps ## What takes too long for each change: builds, searches, random clusters, simulated tenants, broken texts and captures, lies of a pod with a VF
	RAILWRIGHT_TEST_LONG=1 $(BIN)/python -m pytest -m "machine and long" $(WORKERS)
	RAILWRIGHT_TEST_LONG=1 $(BIN)/python -m pytest -n auto tests/limits/test_flow.py tests/explain/test_broken_files.py \
		tests/explain/test_broken_bytes.py \
		tests/results/readers/test_forms_of_recorded.py \
		tests/diagnosis/iterations/test_iterations.py \
		tests/checks/test_captured_settings.py tests/benchmarks/test_rdma.py
	cd node && RAILWRIGHT_TEST_LONG=1 $(GO) test -count 1 -timeout 100m ./internal/tenants/directory
	cd node && $(NEEDED) RAILWRIGHT_TEST_LONG=1 $(GO) test -count 1 -timeout 200m -tags vm -run PodsWithVFs ./test/vm -args offload

# Without these a test that cannot run here would skip itself, and be called ok.
NEEDED := RAILWRIGHT_TEST_NEEDS_ROOT=1 RAILWRIGHT_TEST_NEEDS_OVS=1

.PHONY: test-node
test-node: test-deps ## The node network: its units, and real Open vSwitch and FRR in namespaces
	@# Whole fabrics wait half of their time: two are up at once, and beside them one package after the other.
	cd node && $(NEEDED) $(GO) test -p 2 -timeout 30m ./test/lab ./cmd/... $$($(GO) list ./internal/... ./testlab/...) ./test/chain

.PHONY: test-vm
test-vm: test-deps ## The node network with VFs and flows in hardware, in an emulated machine
	scripts/test-tier vm

.PHONY: test-k8s
test-k8s: test-deps ## The node network in a real Kubernetes of two nodes
	scripts/test-tier k8s

.PHONY: test-aarch64
test-aarch64: test-deps ## The loops, the readers and a proof in the image for aarch64, emulated
	scripts/test-tier aarch64

.PHONY: node
node: ## Build railwrightd and the CNI plugins into out/node
	mkdir -p out/node
	cd node && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o ../out/node/ ./cmd/railwrightd
	node/cmd/railwright-cni/build out/node

.PHONY: image
image: .venv-wheels/ready ## Build the container images for x86-64 and aarch64 into out/ (needs apt, but neither root nor a daemon)
	scripts/build-image --architecture x86_64 --without-nixl out/railwright-image-amd64.tar
	scripts/build-image --architecture aarch64 --without-nixl out/railwright-image-arm64.tar

.PHONY: check-node
check-node: debian-packages .cache/golangci-lint
	@command -v $(GO) >/dev/null || { echo "Go is needed for node/: the version is in node/go.mod"; exit 1; }
	@unformatted=$$(gofmt -l node); [ -z "$$unformatted" ] || { echo "gofmt: $$unformatted"; exit 1; }
	cd node && $(GO) vet ./... && $(GO) vet -tags k8s ./test/k8s ./test/lab ./internal/tenants/kubernetes && $(GO) vet -tags vm ./test/vm
	cd node && for place in "./..." "--build-tags=k8s ./test/k8s ./test/lab ./internal/tenants/kubernetes" "--build-tags=vm ./test/vm"; do \
		../.cache/golangci-lint run --show-stats=false $$place; done
	cd node && $(GO) mod tidy -diff
	@# Anew each time: Go keeps what a test said, and sees no change of a file outside of its module.
	cd node && $(GO) test -count 1 -run 'Schemas|Release' ./cmd/railwrightd
	node/api/generate --check

# The linters of Go and the layers of node/ (node/.golangci.yml), built from the module that pins them.
.cache/golangci-lint: node/lint/go.mod node/lint/go.sum
	@command -v $(GO) >/dev/null || { echo "Go is needed for node/: the version is in node/go.mod"; exit 1; }
	cd node/lint && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o ../../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: check
check: check-python check-node check-prose ## Lint, format, types, layers, schemas: of Python and of Go; prose

.PHONY: check-prose
check-prose: .cache/vale ## Lint the pages by the rules in scripts/prose
	.cache/vale --config scripts/prose/vale.ini --output line *.md docs node testdata

# Parsers in C of the languages whose comments Vale can lint take half of the build: unused here, so not optimised.
.cache/vale: scripts/prose/go.mod scripts/prose/go.sum | debian-packages
	@command -v $(GO) >/dev/null || { echo "Go is needed for the linter of prose: the version is in scripts/prose/go.mod"; exit 1; }
	cd scripts/prose && CGO_CFLAGS='-O0 -w' CGO_CXXFLAGS='-O0 -w' $(GO) build -trimpath -ldflags '-s -w' -o ../../$@ github.com/vale-cli/vale/v3/cmd/vale

.PHONY: check-python
check-python: .venv/dev-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/write-shapes --check
	$(BIN)/python scripts/write-schemas --check
	$(BIN)/python scripts/write-readme --check
	$(BIN)/python scripts/check-house

SITE := out/site
PAGES := .
.PHONY: docs
docs: .venv-docs/ready ## Build the site with its search into out/site: open out/site/index.html
	.venv-docs/bin/python -m sphinx --quiet --fresh-env --fail-on-warning --keep-going -j auto -c docs $(PAGES) $(SITE)

.PHONY: go-modules
go-modules: # Workers of the tests have no network: what they build must be here before
	$(GO) -C node mod download

.PHONY: test-deps
test-deps: .venv/dev-ready .venv-mpich/ready .venv-moto/ready .venv-host/ready .venv-wheels/ready .venv-docs/ready .cache/vale debian-packages cni-plugins go-modules ## Install what the tests need besides: Debian packages, MPICH beside Open MPI, an S3 server, FRR 10
	@scripts/unpack-frr10 || echo "FRR 10 cannot be had here: the tests that need it are waived"

# Tests that use them are in namespaces without a network by then. What was built once is there at once.
.PHONY: cni-plugins
cni-plugins:
	@command -v $(GO) >/dev/null || { echo "Go is needed for node/: the version is in node/go.mod"; exit 1; }
	@node/test/tools/build >/dev/null

.PHONY: debian-packages
debian-packages:
	@missing=$$(for package in $(DEBIAN_PACKAGES); do \
		dpkg-query -W -f '$${Status}' $$package 2>/dev/null | grep -q 'ok installed' || echo $$package; done); \
	if [ -n "$$missing" ]; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
		for service in $(SERVICES); do case "$$missing" in *"$$service"*) \
			if [ -d /run/systemd/system ]; then systemctl --quiet disable --now "$$service"; fi;; esac; done; \
	fi

.venv/dev-ready: .venv/ready requirements/dev.txt
	$(BIN)/python $(PIP) -r requirements/dev.txt
	@touch $@

.venv-mpich/ready: requirements/mpich.txt
	$(PYTHON) -m venv .venv-mpich
	.venv-mpich/bin/python $(PIP) -r requirements/mpich.txt
	@touch $@

.venv-moto/ready: requirements/moto.txt
	$(PYTHON) -m venv .venv-moto
	@# Most of its 204 MB are never loaded: to compile them takes half of the time.
	.venv-moto/bin/python $(PIP) --no-compile -r requirements/moto.txt
	@touch $@

.venv-docs/ready: requirements/docs.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python $(PIP) -r requirements/docs.txt
	@touch $@

.venv-wheels/ready: requirements/wheels.txt
	$(PYTHON) -m venv .venv-wheels
	@# Nearly all of it is Zig, which needs no compiled Python.
	.venv-wheels/bin/python $(PIP) --no-compile -r requirements/wheels.txt
	@touch $@

# A host that has only what the wheel requires.
.venv-host/ready: requirements/base.txt
	$(PYTHON) -m venv .venv-host
	.venv-host/bin/python $(PIP) -r requirements/base.txt
	@touch $@

.PHONY: wheels
wheels: .venv-wheels/ready ## Build dist/: a wheel for x86-64, one for aarch64, and the source archive
	scripts/build-wheels

.venv-mutants/ready: requirements/mutants.txt
	$(PYTHON) -m venv .venv-mutants
	.venv-mutants/bin/python $(PIP) -r requirements/mutants.txt
	@touch $@

.cache/gremlins: scripts/mutating/go.mod scripts/mutating/go.sum
	cd scripts/mutating && CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o ../../$@ github.com/go-gremlins/gremlins/cmd/gremlins

.PHONY: mutants
mutants: test-deps .venv-mutants/ready .cache/gremlins ## Alter 60 lines, one at a time, and see which the tests of HEAD catch: about 3 hours
	.venv-mutants/bin/python scripts/mutants draw
	.venv-mutants/bin/python scripts/mutants run head --tests HEAD

.PHONY: format
format: .venv/dev-ready ## Format and sort imports
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: schemas
schemas: .venv/dev-ready ## Write schema/*.json from the models, and railwrightd's from its own types
	$(BIN)/python scripts/write-schemas
	cd node && $(GO) test -count 1 -run Schemas ./cmd/railwrightd -write

.PHONY: shapes
shapes: .venv/dev-ready ## Write the catalogue of machines and docs/shapes.md from topology/shapes/catalogue
	$(BIN)/python scripts/write-shapes

.PHONY: readme
readme: .venv/dev-ready ## Explain all public outputs again, and write README.md's samples and record
	$(BIN)/python scripts/measured/limits/hold-against-threads --write
	$(BIN)/python scripts/write-readme

.PHONY: measure-overhead
measure-overhead: test-deps ## Our timed loops against plain C and fio, in interleaved pairs; writes out/measured/overhead
	$(BIN)/python scripts/measured/host-paths/measure-overhead

.PHONY: measure-lab
measure-lab: test-deps ## Labs that come and go, 20 of 100 killed; writes out/measured/lab
	$(BIN)/python scripts/measured/lab/measure-lab

.PHONY: lock
lock: .venv/dev-ready ## Write the locked requirements anew (needs `uv`)
	scripts/lock

.PHONY: clean
clean: ## Remove what was built and measured
	rm -rf .venv .venv-docs .venv-host .venv-moto .venv-mpich .venv-mutants .venv-wheels out dist .cache
