# Everything that is done to this project from outside. `make help` lists it.
#
# The environment is .venv. Files under .venv/.made say what has been done; a step runs again when what it
# depends on has changed.

PYTHON ?= python3
SHELL  := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

BIN  := .venv/bin
MADE := .venv/.made
PIP  := $(BIN)/python -m pip --disable-pip-version-check --no-input
export PIP_ROOT_USER_ACTION := ignore

# Kernels are compiled for this machine's instruction set and a portable one; wheels and CI have all of them.
export ONEHOP_ISAS ?= native
wheel wheel-aarch64 macos-check: export ONEHOP_ISAS := all
NATIVE  := CMakeLists.txt $(shell find csrc -type f)
# An editable installation lists the files that it knows.
LAYOUT  := $(shell find src -name '*.py' | LC_ALL=C sort | cksum | cut -d' ' -f1)
CHECKED := $(shell find csrc tests/native -name '*.[ch]' -o -name '*.cpp' -o -name '*.hpp')
# make bench GRAPHS=cora measures some graphs only, and leaves the results of the repository as they are.
GRAPHS :=
MEASURED := $(if $(GRAPHS),--graphs $(GRAPHS) --results build/bench)

# The tests of a file run in one process, and files in as many as this, in the order of tests/order.py. Waiting
# threads leave the cores to others.
WORKERS  := 2
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
test coverage test-thresholds test-dgl test-triton: export OMP_WAIT_POLICY := PASSIVE
# Where images turn compiled Python off, each of many processes would compile all sources again.
test coverage test-thresholds test-dgl test-triton: export PYTHONDONTWRITEBYTECODE :=

say = @printf '\n\033[1m== %s\033[0m\n' "$(1)"

.PHONY: help demo test coverage test-all test-thresholds test-dgl test-potentials test-triton packages matrix fuzz fuzz-ingest mutants sanitize gpu gpu-wheels gpu-check lint format bench bench-models bench-potentials results figures docs wheel wheel-aarch64 macos-check clean

help:  ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):[^#]*## */  make \1\t/' | expand -t 22

demo: $(MADE)/demo $(MADE)/onehop  ## train five PyG models with and without onehop (2 minutes and a half)
	$(call say,onehop demo)
	$(BIN)/onehop demo $(ARGS)

test: $(MADE)/develop $(MADE)/onehop  ## run all tests
	$(call say,pytest)
	$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

coverage: override ARGS += -p tests.first_forms --cov --cov-report=term --cov-fail-under=90
coverage: test  ## run all tests, a quarter longer; fails below 90 % coverage

test-all: export ONEHOP_TESTS := all
test-all: test  ## run all forms of every test (nightly)

# What is done from a size on alone, done at every size. With ONEHOP_PYG_SOURCE, a checkout of PyG's source, its own
# tests too.
test-thresholds: $(MADE)/develop $(MADE)/onehop  ## the patch's tests once more, with every threshold at its least
	$(call say,pytest without thresholds)
	ONEHOP_THRESHOLDS=none $(BIN)/python -m pytest $(PARALLEL) $(if $(FILES),$(FILES),tests/integrations/pyg \
	  tests/kernels/test_ordered_weights.py --ignore tests/integrations/pyg/test_idioms.py) $(ARGS)
	$(if $(ONEHOP_PYG_SOURCE),$(BIN)/python tests/integrations/pyg/host_suite.py --source $(ONEHOP_PYG_SOURCE))

# DGL's newest release in the registry was made for older releases of torch, so it stays out of .venv. It lies in
# a folder of its own and sees the packages of .venv; the tests help it to be imported.
test-dgl: $(MADE)/develop $(MADE)/onehop .venv-dgl/.made  ## the tests of DGL's patch, beside DGL 2.1.0
	$(call say,pytest beside DGL)
	PYTHONPATH=.venv-dgl $(BIN)/python -m pytest $(PARALLEL) tests/integrations/dgl tests/benchmarks/test_gpu_peers.py \
	  tests/reproduce/test_baselines.py \
	  --cov=src/onehop/integrations/dgl --cov-branch --cov-config=/dev/null --cov-report=term --cov-fail-under=90 $(ARGS)

# MACE and NequIP need different releases of e3nn, so each has a folder of its own, where Python looks first.
test-potentials: $(MADE)/develop $(MADE)/onehop .venv-potentials/mace/.made .venv-potentials/nequip/.made  ## the tests of the patch of MACE and NequIP (2 minutes)
	for package in mace nequip; do \
	  printf '\n\033[1m== pytest beside %s\033[0m\n' $$package; \
	  PYTHONPATH=.venv-potentials/$$package $(BIN)/python -m pytest $(PARALLEL) tests/integrations/equivariant $(ARGS) || exit 1; \
	done

bench-potentials: $(MADE)/develop $(MADE)/onehop .venv-potentials/mace/.made .venv-potentials/nequip/.made  ## energies, forces and training steps of MACE and NequIP (5 minutes)
	for package in mace nequip; do \
	  printf '\n\033[1m== %s, with and without the patch\033[0m\n' $$package; \
	  PYTHONPATH=.venv-potentials/$$package $(BIN)/python -m benchmarks.equivariant.bench_potentials \
	    --potentials $$package-small,$$package-medium --json benchmarks/results/potentials_$$package.json $(ARGS) || exit 1; \
	done
	$(call say,potentials in PyG and torch)
	$(BIN)/python -m benchmarks.equivariant.bench_potentials --potentials schnet,painn \
	  --json benchmarks/results/potentials_torch.json $(ARGS)
	$(BIN)/python -m benchmarks.render_results

# Another release of triton than that of .venv, in a folder of its own, where Python looks first.
TRITON := 3.4.0
test-triton: $(MADE)/develop $(MADE)/onehop .venv-triton/$(TRITON)/.made  ## the GPU kernels' tests with another triton: TRITON=3.4.0
	$(call say,pytest beside triton $(TRITON))
	PYTHONPATH=.venv-triton/$(TRITON) $(BIN)/python -m pytest $(PARALLEL) tests/benchmarks/test_gpu_ahead.py \
	  $(if $(FILES),$(FILES),tests/kernels/triton tests/integrations/pyg/test_waits.py) $(ARGS)

# Packages that are built on PyG. Those of COMPILED need C++ that pip compiles for this torch; make packages COMPILED=
# omits them. Those of ALONE require what does not install here (pickle5, a torchvision for CUDA); what their
# models import is named.
PACKAGES := torch-geometric-signed-directed==1.2.0 pygod==1.1.0 anemoi-models==0.13.0 mace-torch==0.3.16 tensorboard
ALONE := hydragnn==3.0 nvidia-physicsnemo==2.2.2 warp-lang==1.19.0 tensordict==0.15.3 pyvers==0.2.3 jaxtyping==0.3.11 \
  s3fs==2026.9.0 aiobotocore==3.10.0 botocore==1.43.117 aioitertools==0.13.0 jmespath==1.1.0 wrapt==2.5.2 \
  nvtx==0.2.17 termcolor==3.3.0 treelib==1.8.0 six==1.17.0
COMPILED := torch_scatter torch_sparse torch-spatiotemporal==0.9.5 torch-geometric-temporal==0.56.2
packages: $(MADE)/develop $(MADE)/onehop .venv-packages/.made  ## layers of packages built on PyG, with and without the patch (5 minutes)
	$(call say,packages built on PyG)
	.venv-packages/bin/python -m benchmarks.packages --json benchmarks/results/packages.json --page docs/packages.md $(ARGS)

matrix: $(MADE)/develop  ## the wheel beside old and new Python, torch, PyG and DGL (an hour; gigabytes to download)
	$(call say,the wheel in fresh environments)
	$(BIN)/python scripts/matrix.py $(ARGS)
	$(BIN)/python -m benchmarks.render_matrix

fuzz: $(MADE)/develop $(MADE)/onehop  ## random programs with and without the patch (30 minutes at most)
	$(call say,random programs with and without the patch)
	$(BIN)/python -m tests.differential --programs 10000 --seconds 1800 --processes 2 $(ARGS)

fuzz-ingest: $(MADE)/develop $(MADE)/onehop  ## random files of edges through onehop ingest (15 minutes at most)
	$(call say,random files of edges)
	$(BIN)/python -m tests.streaming.random_tables $(ARGS)

# The ordinary build stays as it is: what is compiled here lies in build/.
sanitize: $(MADE)/develop  ## tests of native code with sanitizers for memory, arithmetic, threads
	$(call say,pytest on an extension with sanitizers: compiles for long the first time)
	$(BIN)/python scripts/sanitize.py $(ARGS)

mutants: $(MADE)/develop $(MADE)/onehop $(MADE)/mutants  ## change one line at a time; which changes do the tests miss?
	$(call say,mutants)
	$(BIN)/python scripts/mutants $(ARGS)

# A Python whose torch has a GPU; nothing else is needed there but a compiler and, without network, what gpu-wheels brought.
GPU_PYTHON := python3
gpu:  ## judge the GPU kernels on this machine: tests, then the benchmark (10 minutes; needs a GPU)
	@$(GPU_PYTHON) scripts/gpu.py $(ARGS)

gpu-wheels: $(MADE)/develop  ## build/gpu-wheels: what make gpu needs where there is no network
	$(call say,downloading packages for a machine with a GPU)
	$(BIN)/python scripts/gpu_wheels.py --python-version 3.12 --platform manylinux_2_28_x86_64 \
	  --platform manylinux_2_27_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 $(ARGS)
	@ls build/gpu-wheels

gpu-check: $(MADE)/develop $(MADE)/onehop  ## compile every GPU kernel for four GPUs, and the benchmark's for one, without one
	$(call say,kernels compiled ahead of time)
	TRITON_CACHE_DIR=build/triton $(BIN)/python -m benchmarks.gpu.check --json build/gpu-check.json $(ARGS)

lint: $(MADE)/develop $(MADE)/onehop  ## formatting, style, types, import arrows
	$(call say,ruff)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(call say,clang-format)
	$(BIN)/clang-format --dry-run --Werror $(CHECKED)
	$(call say,mypy)
	$(BIN)/mypy
	$(call say,import-linter)
	$(BIN)/lint-imports

format: $(MADE)/develop  ## put Python and C++ into form
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format
	$(BIN)/clang-format -i $(CHECKED)

# A step whose results are there, of this commit and this machine, is not measured again; make bench ARGS=--list lists
# the steps. PyG's examples are those of ONEHOP_PYG_SOURCE, a checkout of PyG, which is fetched otherwise.
PYG_SOURCE := $(or $(ONEHOP_PYG_SOURCE),build/pyg)
bench: $(MADE)/develop $(MADE)/onehop $(MADE)/examples | $(PYG_SOURCE)  ## measure what README and docs/results.md show (an hour), resumable; GRAPHS=cora: a few minutes
	$(BIN)/python -m benchmarks.steps --source $(PYG_SOURCE) $(MEASURED) $(ARGS)
	$(if $(GRAPHS)$(ARGS),,$(BIN)/python -m benchmarks.render_results)

# Cora is read from the folder that ONEHOP_DATA names; without it its twin is trained.
bench-models: $(MADE)/develop $(MADE)/onehop  ## measure the published models alone (10 minutes) and write it down
	$(BIN)/python -m benchmarks.steps --only published_models
	$(BIN)/python -m benchmarks.render_results

build/pyg: | $(MADE)/develop
	$(call say,fetching the sources of PyG)
	@rm -rf $@ $@.part && mkdir -p build
	git clone --quiet --depth 1 --branch $$($(BIN)/python -c 'from importlib.metadata import version; print(version("torch_geometric"))') \
	  https://github.com/pyg-team/pytorch_geometric $@.part
	@mv $@.part $@

results: $(MADE)/develop $(MADE)/onehop  ## put the results that were measured into README.md and docs/, tables and pictures
	$(BIN)/python -m benchmarks.render_results
	$(BIN)/python -m benchmarks.render_examples
	$(BIN)/python -m benchmarks.render_reproductions
	$(BIN)/python -m benchmarks.machines.render_pim
	$(BIN)/python -m benchmarks.machines.render_pictures

# make figures QUICK=--quick WORKS="pygim grande" computes some of them, on parts of the graphs.
WORKS := pygim grande io-aware isplib
QUICK :=
figures: $(MADE)/develop $(MADE)/onehop  ## the figures of four published works beside ours, and their page
	$(call say,onehop reproduce $(WORKS) $(QUICK))
	for work in $(WORKS); do \
	  $(BIN)/onehop reproduce $$work $(QUICK) --json benchmarks/results/reproduce/$$work.json \
	    --plot docs/images/reproduce; \
	done
	$(BIN)/python -m benchmarks.render_reproductions

# What cannot be linked, found or read is an error, and so is a page that is wider than its window.
docs: $(MADE)/docs  ## the documents as a site in build/site, checked in Chromium where it is installed (3 minutes)
	$(call say,mkdocs)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)
	$(call say,every page in Chromium)
	$(BIN)/python scripts/site/check_pages.py

# auditwheel names the oldest glibc whose systems can load the wheel: what this machine's compiler asks for. The release
# workflow builds in containers of older systems.
wheel: $(MADE)/wheel  ## dist/: a manylinux wheel for this Python, and the sources without tests
	$(call say,building the wheel and the sources)
	@rm -rf build/wheels
	$(PIP) wheel -v --no-deps --no-build-isolation --wheel-dir build/wheels .
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist build/wheels/*.whl
	$(BIN)/python -m build --sdist --no-isolation --outdir dist .
	@ls -l dist

# Debian: apt install g++-aarch64-linux-gnu. The kernels in it are tested under an emulator by tests/native.
wheel-aarch64: $(MADE)/wheel  ## dist/: the wheel for 64-bit Arm, cross-compiled
	$(call say,cross-compiling the wheel for 64-bit Arm)
	@mkdir -p dist
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python scripts/cross_wheel.py dist

# Zig brings the headers of macOS and stubs of its libraries.
macos-check: $(MADE)/macos  ## compile and link the extensions for macOS on 64-bit Arm; nothing runs (10 minutes)
	$(call say,cross-compiling the extensions for macOS)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python scripts/macos_check.py build/macos

clean:  ## remove the environment and all that was built
	rm -rf .venv .venv-dgl .venv-packages .venv-potentials .venv-triton build dist .coverage .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# --- the environment -------------------------------------------------------------------------------------

$(MADE)/venv:
	$(call say,making .venv with $$($(PYTHON) --version))
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "onehop needs Python 3.11 or later; name one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv .venv \
	  || { echo "Python's venv module is missing; on Debian: apt install python3-venv" >&2; exit 1; }
	@mkdir -p $(MADE) && touch $@

# What the project needs, at the tested versions; the project itself comes after, so that changed C++ leaves
# these alone. A developer's environment holds all that the demo needs.
$(MADE)/develop: EXTRAS := build test lint bench
$(MADE)/demo: EXTRAS := build cli pyg
$(MADE)/develop $(MADE)/demo: $(MADE)/venv pyproject.toml constraints.txt scripts/requirements.py
	$(call say,installing what onehop needs ($(EXTRAS)); PyTorch is large)
	$(BIN)/python scripts/requirements.py $(EXTRAS) > $(MADE)/requirements.txt
	$(PIP) install --progress-bar off -c constraints.txt -r $(MADE)/requirements.txt
	@touch $@ $(if $(filter develop,$(@F)),$(MADE)/demo)

# What one kind of work needs besides: the extra of the same name.
$(MADE)/docs $(MADE)/examples $(MADE)/mutants: | $(MADE)/develop
$(MADE)/docs $(MADE)/examples $(MADE)/mutants $(MADE)/wheel $(MADE)/macos: constraints.txt pyproject.toml | $(MADE)/demo
	$(call say,installing what $(@F) needs)
	$(BIN)/python scripts/requirements.py $(@F) > $(MADE)/requirements-$(@F).txt
	$(PIP) install --progress-bar off -c constraints.txt -r $(MADE)/requirements-$(@F).txt
	@touch $@

.venv-dgl/.made: constraints.txt | $(MADE)/develop
	$(call say,installing DGL 2.1.0)
	@rm -rf .venv-dgl
	$(PIP) install --progress-bar off --no-deps --target .venv-dgl -c constraints.txt dgl pandas
	@touch $@

# Without what they require: a torch of their own. Named is what they import.
.venv-potentials/mace/.made: POTENTIAL := mace-torch==0.3.16 e3nn==0.4.4 opt-einsum-fx==0.1.4 torch-ema==0.3 \
  torchmetrics==1.9.0 lightning-utilities==0.15.3 pandas
.venv-potentials/nequip/.made: POTENTIAL := nequip==0.19.1 lightning==2.6.6 torchmetrics==1.9.0 lightning-utilities==0.15.3 \
  hydra-core==1.3.8 omegaconf==2.3.1 antlr4-python3-runtime==4.9.3
.venv-potentials/%/.made: | $(MADE)/develop
	$(call say,installing $(POTENTIAL))
	@rm -rf .venv-potentials/$*
	$(PIP) install --progress-bar off --no-deps --target .venv-potentials/$* $(POTENTIAL)
	@touch $@

# It sees the packages of .venv.
.venv-packages/.made: constraints.txt | $(MADE)/develop
	$(call say,installing $(PACKAGES) $(COMPILED) $(ALONE))
	@rm -rf .venv-packages
	$(BIN)/python -m venv .venv-packages
	@for site in .venv/lib/python3*/site-packages; do \
	  echo "import site; site.addsitedir('$(CURDIR)/$$site')" > .venv-packages/$${site#.venv/}/onehop_environment.pth; \
	done
	.venv-packages/bin/python -m pip --disable-pip-version-check install --progress-bar off wheel
	@grep -v -E '^(decorator|e3nn)==' constraints.txt > .venv-packages/constraints.txt  # PyG-temporal and MACE need older ones
	.venv-packages/bin/python -m pip --disable-pip-version-check install --progress-bar off --no-build-isolation \
	  -c .venv-packages/constraints.txt $(PACKAGES) $(COMPILED)
	.venv-packages/bin/python -m pip --disable-pip-version-check install --progress-bar off --no-build-isolation \
	  --no-deps $(ALONE)
	@touch $@

.venv-triton/%/.made: | $(MADE)/develop
	$(call say,installing triton $*)
	@rm -rf .venv-triton/$*
	$(PIP) install --progress-bar off --no-deps --target .venv-triton/$* triton==$*
	@touch $@

$(MADE)/kinds/%:
	@rm -rf $(@D) && mkdir -p $(@D) && touch $@

# Editable: Python is read from src. Objects stay in build/, so only what changed is compiled again.
$(MADE)/onehop: $(NATIVE) $(MADE)/kinds/$(ONEHOP_ISAS)-$(LAYOUT) pyproject.toml constraints.txt | $(MADE)/demo
	$(call say,compiling onehop: 3 minutes the first time)
	@command -v "$${CXX:-c++}" > /dev/null \
	  || { echo "No C++ compiler found; on Debian: apt install g++" >&2; exit 1; }
	$(PIP) install -v --no-deps --no-build-isolation -e .
	@touch $@
