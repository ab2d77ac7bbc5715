# Thin: every target calls a CMake preset or a script. `make` alone prints this list.

GOLDEN ?= tests/golden/data
PREFIX ?= $(CURDIR)/build/install
FUZZ_SECONDS ?= 60
JOBS   ?= $(shell nproc)

.DEFAULT_GOAL := help
.PHONY: help setup plugin build test demo demo-workers docs golden lint fmt bench asan tsan fuzz install clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install the packages that are missing (Debian 12)
	@scripts/setup.sh

plugin: setup ## Fetch the CPU plugin of XLA into build/pjrt
	@scripts/fetch_plugin.sh

build: setup ## Configure and build everything, optimised, into build/release
	cmake --preset release
	cmake --build --preset release --parallel $(JOBS)

test: plugin build ## Build, then run all tests
	@rm -rf build/release/test_results
	ctest --preset release

demo: setup ## Train on handwritten digits by the command, on one and on two replicas
	cmake --preset release
	cmake --build --preset release --parallel $(JOBS) --target lockstep_command
	@scripts/demo.sh build/release/bin/lockstep

demo-workers: setup ## Train on handwritten digits on two workers
	cmake --preset release
	cmake --build --preset release --parallel $(JOBS) --target digits lockstep_command
	build/release/bin/lockstep run -n 2 -- build/release/bin/digits

docs: ## Build the documentation as a site into build/site; needs only Python
	scripts/make_docs.py

golden: setup ## Compare with TensorFlow's own answers; GOLDEN=DIR for another folder of them
	cmake --preset release
	cmake --build --preset release --parallel $(JOBS) --target lockstep_golden
	build/release/bin/lockstep_golden $(GOLDEN)

lint: setup ## Check format, layers, headers and scripts
	cmake --preset release
	scripts/lint.sh

fmt: setup ## Format all sources in place
	scripts/format.sh -i

bench: build ## Measure collectives, run and the training step against this machine's limits
	build/release/bin/lockstep bench all

asan: plugin ## Run the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	cmake --preset asan
	cmake --build --preset asan --parallel $(JOBS) --target sanitized_tests
	ctest --preset asan

tsan: plugin ## Run the tests under ThreadSanitizer
	cmake --preset tsan
	cmake --build --preset tsan --parallel $(JOBS) --target threaded_tests
	ctest --preset tsan

fuzz: setup ## Throw damaged data at the readers of formats, FUZZ_SECONDS=60 at each
	scripts/fuzz.sh $(FUZZ_SECONDS)

install: build ## Install to PREFIX
	cmake --install build/release --prefix $(PREFIX)

clean: ## Remove everything that was built
	rm -rf build
