# Forwards to CMake: each target is one or two presets (CMakePresets.json). Every target first
# installs the missing Debian packages that it needs (cmake/packages.txt).

PACKAGES := cmake/install-packages.sh
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local

# $(call build,preset,package groups,options of CMake): installs the groups, configures the preset's
# tree and builds it.
define build
	@$(PACKAGES) $(2)
	@cmake --preset $(1) $(3)
	@cmake --build --preset $(1) --parallel $(JOBS)
endef

# $(call ctest,preset); LABEL_EXCLUDE is a regular expression of test labels to leave out. Skipped
# tests are compared with tests/may_skip.txt. Many tests mostly wait, so half as many again as
# processors run at once.
TEST_JOBS ?= $(shell echo $$(($(JOBS) + ($(JOBS) + 1) / 2)))
ctest = @rm -f build/$(1)/skips.txt; \
	  CBT_SKIPS=$(CURDIR)/build/$(1)/skips.txt ctest --preset $(1) --parallel $(TEST_JOBS) $(if $(LABEL_EXCLUDE),--label-exclude '$(LABEL_EXCLUDE)') && \
	  python3 -B tests/skips.py build/$(1)

# One tree, build/release, in three steps: libraries and command, tests, benchmarks. Each configures
# what it needs and keeps what an earlier step added.
libraries_only = $(if $(wildcard build/release/CMakeCache.txt),,-DCBT_BUILD_TESTS=OFF -DCBT_BUILD_BENCH=OFF)

.PHONY: all libs debug clang test-build test asan asan-core tsan fuzz fuzz-long fuzz-planted coverage mutation planted scorecard soak load bench \
        bench-build bench-once bench-cold bench-docs emulation golden-arm64 newest-debian newest-croaring interop-js ceph demo demo-driver lint tidy \
        nightly docs deb deb-test image install clean help
# The trees share the machine, so they build one after another, also under -j.
.NOTPARALLEL:

all:
	@$(PACKAGES) build
	@cmake --preset release $(libraries_only)
	@cmake --build --preset release --parallel $(JOBS) --target cbt_products

# What a plugin or a backup application links, and the command.
libs:
	@$(PACKAGES) build
	@cmake --preset release $(libraries_only)
	@cmake --build --preset release --parallel $(JOBS) --target cbt_core cbt_rpc cbt_source cbt_tool

debug:
	$(call build,debug,build test bench)
	$(call ctest,debug)

clang:
	$(call build,clang,build test bench clang)
	$(call ctest,clang)

test-build:
	@$(PACKAGES) build test
	@cmake --preset release -DCBT_BUILD_TESTS=ON $(if $(wildcard build/release/CMakeCache.txt),,-DCBT_BUILD_BENCH=OFF)
	@cmake --build --preset release --parallel $(JOBS)

test: test-build
	$(call ctest,release)

asan:
	$(call build,asan,build test)
	$(call ctest,asan)

# Core and sources only: the code that parses untrusted bytes. The tests' own code is not
# instrumented, and the libraries are the fuzzers'.
asan-core:
	@$(PACKAGES) build fuzz test
	@cmake --preset fuzz -DCBT_BUILD_TESTS=ON
	@cmake --build --preset fuzz --parallel $(JOBS)
	$(call ctest,fuzz)

tsan:
	$(call build,tsan,build test)
	$(call ctest,tsan)

coverage:
	$(call build,coverage,build test coverage)
	@tests/coverage/coverage.py build/coverage --jobs $(JOBS)

fuzz:
	@$(PACKAGES) build fuzz
	@cmake --preset fuzz $(if $(wildcard build/fuzz/CMakeCache.txt),,-DCBT_BUILD_TESTS=OFF)
	@cmake --build --preset fuzz --parallel $(JOBS) --target fuzzers
	@cbt=build/release/bin/cbt; fuzz/make_corpus.py --output build/fuzz/corpus \
	  $$(test -x $$cbt && echo --cbt $$cbt)

# Runs each fuzzer, or those that FUZZERS names, for FUZZ_SECONDS. FUZZ_KEEP keeps new seeds and
# crashes.
FUZZ_SECONDS ?= 3600
FUZZ_KEEP ?= build/fuzz/kept
FUZZERS ?=
fuzz-long: fuzz
	@fuzz/run.sh build/fuzz/bin build/fuzz/corpus $(FUZZ_KEEP) $(FUZZ_SECONDS) $(FUZZERS)

# Checks that each fuzzer finds planted bugs.
fuzz-planted: fuzz
	@cbt=build/release/bin/cbt; fuzz/planted.py $$(test -x $$cbt && echo --cbt $$PWD/$$cbt)

# BENCH_FILTER: a regular expression of rows; BENCH_REPETITIONS: of each.
BENCH_REPETITIONS ?= 5
report = @python3 bench/report.py --output build/bench --repetitions $(BENCH_REPETITIONS) \
	  --filter '$(BENCH_FILTER)' $(1) \
	  --context compiler="$$($${CXX:-c++} --version | head -n 1), -O3" \
	  --context levels="$$(build/release/bin/cbt --version | sed -n 's/^simd levels available: //p')" \
	  --context commit="$$(git rev-parse --short HEAD 2>/dev/null)" \
	  build/release/bin/bench_*

bench-build:
	@$(PACKAGES) build bench
	@cmake --preset release -DCBT_BUILD_BENCH=ON $(if $(wildcard build/release/CMakeCache.txt),,-DCBT_BUILD_TESTS=OFF)
	@cmake --build --preset release --parallel $(JOBS) --target cbt_products benchmarks

bench: bench-build
	$(call report,)

bench-docs: bench-build
	$(call report,--document docs/performance.md)

# Runs each benchmark once to see that it still works, without the inputs of a quarter of a gigabyte.
bench-once: bench-build
	@for bench in build/release/bin/bench_*; do echo "$$bench"; \
	  said=$$($$bench --benchmark_min_time=0.01 '--benchmark_filter=-/(268435456|10000)/' 2>&1) || \
	    { echo "$$said"; exit 1; }; done

# Images outside the page cache, on a private file system (FUSE) or in COLD_FOLDER. Run by hand.
bench-cold:
	@$(PACKAGES) build bench bench-cold
	@cmake --preset release -DCBT_BUILD_BENCH=ON $(if $(wildcard build/release/CMakeCache.txt),,-DCBT_BUILD_TESTS=OFF)
	@cmake --build --preset release --parallel $(JOBS) --target cold_images
	@build/release/bin/cold_images $(if $(COLD_FOLDER),--folder=$(COLD_FOLDER))

emulation: all
	@$(PACKAGES) emulation
	@tests/emulation/run.sh . build/emulation build/release/bin/cbt

# Needs npm, and its registry the first time.
interop-js: all
	@mkdir -p build/js
	@test -d build/js/node_modules/@grpc/grpc-js || \
	  npm install --prefix build/js --no-audit --no-fund --silent @grpc/grpc-js
	@NODE_PATH=$(CURDIR)/build/js/node_modules node tests/interop/js_test.js build/release/bin/cbt

# Plants faults and lists those that no test notices: MUTANTS of them (200, about an hour). Each run
# uses a new seed and prints it; MUTATION_SEED repeats one.
MUTANTS ?= 200
MUTATION_SEED ?= $(shell od -An -N3 -tu4 /dev/urandom | tr -d ' ')
mutation:
	@$(PACKAGES) build test
	@tests/mutation/mutate.py --mutants $(MUTANTS) --seed $(MUTATION_SEED)

# Can every test fail? One fault for each disaster and each kind of test, in a copy of the tree;
# PLANTED: only faults whose name contains this.
planted:
	@$(PACKAGES) build test
	@tests/planted/plant.py --jobs $(JOBS) --only '$(PLANTED)'

# The formats' golden files on 64-bit ARM; downloads abseil's arm64 packages from the mirror.
golden-arm64:
	@$(PACKAGES) build emulation
	@tests/emulation/run_golden.sh . build/golden-arm64

# The committed tree against the newest stable Debian, in NEWEST_ROOT: needs root, debootstrap and a mirror.
NEWEST_ROOT ?= /var/tmp/cbt-newest
NEWEST_SUITE ?= trixie
newest-debian:
	@$(PACKAGES) newest
	@tests/machines/newest.sh . $(NEWEST_ROOT) $(NEWEST_SUITE)

# The code that uses CRoaring, with Debian's newest package of it, downloaded from the mirror.
newest-croaring:
	@$(PACKAGES) build test bench
	@tests/machines/newest_croaring.sh . build/croaring

# The figures of docs/reliability.md. SCORECARD: --rows 1,7 for some, --all to include those that
# take minutes to an hour.
SCORECARD ?=
scorecard: test-build
	@tests/scorecard/scorecard.py $(SCORECARD)

# A real Ceph on the loopback interface; installs 100 MB of packages.
ceph: all
	@$(PACKAGES) ceph
	@tests/ceph/run.sh build/release/bin/cbt . build/release

# Mixed load on `serve` and `relay` for SOAK_SECONDS (an hour); build/soak keeps the findings.
SOAK_SECONDS ?= 3600
soak_test = @/usr/bin/python3 -B tests/soak/$(1) build/release/bin/cbt build/release/tests/interop $(2)
soak: test-build
	$(call soak_test,soak.py,--seconds $(SOAK_SECONDS) --output build/soak)

# A thousand slow readers, ten thousand that vanish: LOAD_OPTIONS, see tests/soak/load.py.
load: test-build
	$(call soak_test,load.py,build/release/bin/slow_readers $(LOAD_OPTIONS))

demo: all
	@$(PACKAGES) demo
	@tests/demo/demo.sh build/release/bin

demo-driver:
	@$(PACKAGES) build demo-driver
	@cmake --preset release $(libraries_only)
	@cmake --build --preset release --parallel $(JOBS) --target cbt_tool cbt_driver_tool cbt_nbdkit_plugin
	@/usr/bin/python3 tests/demo/driver/demo.py build/release/bin/cbt build/release/lib/nbdkit-cbt-plugin.so

lint: all
	@$(PACKAGES) lint
	@cmake/lint.sh build/release $(JOBS) format cppcheck

# clang-tidy of the whole of src/, half an hour; part of `make nightly`.
tidy: all
	@$(PACKAGES) lint
	@cmake/lint.sh build/release $(JOBS) tidy

# Checks that take hours. Continues after failures, and ends with a list of what ran.
nightly:
	@.ci/nightly

# The documents and the public headers as one site: build/docs/html/index.html.
docs:
	@$(PACKAGES) docs
	@docs/site/build.py --output build/docs

# libcbt-dev, cbt and cbt-doc in build/deb/packages.
deb:
	@$(PACKAGES) build docs deb
	@debian/build.sh build/deb $(JOBS)

# The servers of a cluster, and the command, as container images: OCI archives, built without a daemon.
IMAGE ?= build/image/csi-snapshot-metadata.tar
IMAGE_CBT ?= build/image/cbt.tar
IMAGE_TAG ?= latest
image: all
	@$(PACKAGES) build
	@deploy/image/build.py --program build/release/bin/cbt-cluster --output $(IMAGE) --tag $(IMAGE_TAG)
	@deploy/image/build.py --program build/release/bin/cbt --output $(IMAGE_CBT) --tag $(IMAGE_TAG)

# The packages of `make deb` in a new Debian in DEB_ROOT: needs root, mmdebstrap and a mirror.
DEB_ROOT ?= /var/tmp/cbt-deb-test
deb-test: deb
	@$(PACKAGES) deb-test
	@debian/test.sh build/deb/packages $(DEB_ROOT)

install: all
	@cmake --install build/release --prefix $(PREFIX)

clean:
	@cmake -E rm -rf build

help:
	@echo 'make            libraries and the cbt command: build/release/lib, build/release/bin'
	@echo 'make libs       only core, rpc, source and the cbt command'
	@echo 'make test       the same, then builds and runs every test'
	@echo 'make demo       two images to a verified change stream, shown'
	@echo 'make demo-driver  a volume of cbt-driver driver, backed up while it is in use'
	@echo 'make bench      runs the benchmarks: build/bench/report.md (BENCH_FILTER, BENCH_REPETITIONS)'
	@echo 'make bench-docs the same, and puts the tables into docs/performance.md'
	@echo 'make fuzz       fuzzers in build/fuzz/bin, and their seeds'
	@echo 'make fuzz-long  runs them: FUZZ_SECONDS each (an hour), FUZZERS, FUZZ_KEEP'
	@echo 'make fuzz-planted  bugs of every kind, put there: does the fuzzer find each within a minute?'
	@echo 'make mutation   planted faults: which of them does no test notice? (MUTANTS)'
	@echo 'make planted    one fault for each kind of test: each must turn its test red (PLANTED)'
	@echo 'make emulation  kernels under qemu: 64-bit ARM, old x86-64 processors'
	@echo 'make golden-arm64   the file formats on 64-bit ARM under qemu'
	@echo 'make newest-debian  builds and tests against the newest Debian (root, debootstrap)'
	@echo 'make newest-croaring  the test and the benchmarks that know CRoaring, with its newest version'
	@echo 'make ceph       RBD sources against a real Ceph on the loopback interface'
	@echo 'make interop-js grpc-js as client and as plugin (needs npm)'
	@echo 'make scorecard  what is promised, in figures (SCORECARD=--all: all of them)'
	@echo 'make soak       mixed load on the servers: SOAK_SECONDS (an hour), into build/soak'
	@echo 'make load       what slow, stalled and vanishing clients cost'
	@echo 'make asan       tests under the address and undefined-behaviour sanitizers'
	@echo 'make asan-core  the same without gRPC, in the tree of the fuzzers'
	@echo 'make tsan       tests under the thread sanitizer'
	@echo 'make debug      unoptimised, with checks of the standard library, and its tests'
	@echo 'make clang      as release, with clang, and its tests'
	@echo 'make lint       clang-format (check only) and cppcheck'
	@echo 'make tidy       clang-tidy of all of src/ (half an hour)'
	@echo 'make nightly    what takes hours: every tree and its tests, clang-tidy, planted faults, long fuzzing'
	@echo 'make bench-once every benchmark for a moment'
	@echo 'make bench-cold images that are not in the page cache (FUSE, or COLD_FOLDER)'
	@echo 'make docs       documents and public headers as one site: build/docs/html/index.html'
	@echo 'make deb        Debian packages libcbt-dev, cbt, cbt-doc: build/deb/packages'
	@echo 'make deb-test   installs, uses and removes them in a clean Debian (root, mmdebstrap)'
	@echo 'make image      container images: build/image/csi-snapshot-metadata.tar (the sidecar), cbt.tar'
	@echo 'make install    into PREFIX (default /usr/local), below DESTDIR if set'
	@echo 'make clean      removes build/'
