# Forwards to CMake: each target is one or two presets (CMakePresets.json). `make help` prints the
# targets with the text after their `##`. Only `make deps` installs Debian packages, and `make test`
# and `make demo` by it; the others name what is missing (cmake/packages.txt).

PACKAGES := cmake/install-packages.sh --check
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local

# $(call build,preset,package groups,options of CMake): configures the preset's tree and builds it.
define build
	@$(PACKAGES) $(2)
	@cmake --preset $(1) $(3)
	@cmake --build --preset $(1) --parallel $(JOBS)
endef

# $(call ctest,preset); LABEL_EXCLUDE is a regular expression of test labels to leave out. Skipped
# tests are compared with tests/may_skip.txt. Many tests mostly wait, so half as many again as
# processors run at once.
TEST_JOBS ?= $(shell echo $$(($(JOBS) + ($(JOBS) + 1) / 2)))
ctest = @rm -f build/$(1)/skips.txt; $(use_envtest) \
	  CBT_SKIPS=$(CURDIR)/build/$(1)/skips.txt ctest --preset $(1) --parallel $(TEST_JOBS) $(if $(LABEL_EXCLUDE),--label-exclude '$(LABEL_EXCLUDE)') && \
	  python3 -B tests/skips.py build/$(1)

# Tests use the control plane of `make envtest` once it has been built, unless KUBEBUILDER_ASSETS is
# set; set to nothing, none.
use_envtest = if [ -z "$${KUBEBUILDER_ASSETS+set}" ] && built=$$(tests/envtest/build.sh --built control-plane etcd); then \
	    export KUBEBUILDER_ASSETS="$$built" CBT_SNAPSHOT_CRDS="$${CBT_SNAPSHOT_CRDS:-$$built/crds}"; fi;

# One tree, build/release, in three steps: libraries and command, tests, benchmarks. Each configures
# what it needs and keeps what an earlier step added.
libraries_only = $(if $(wildcard build/release/CMakeCache.txt),,-DCBT_BUILD_TESTS=OFF -DCBT_BUILD_BENCH=OFF)

.PHONY: $(shell sed -n 's/^\([a-z0-9-]*\):.*/\1/p' Makefile)
# The trees share the machine, so they build one after another, also under -j.
.NOTPARALLEL:

all:  ## libraries and the cbtctl command: build/release/lib, build/release/bin
	@$(PACKAGES) build
	@cmake --preset release $(libraries_only)
	@cmake --build --preset release --parallel $(JOBS) --target cbt_products

# What a plugin or a backup application links, and the command.
libs:  ## only core, rpc, source and the cbtctl command
	@$(PACKAGES) build
	@cmake --preset release $(libraries_only)
	@cmake --build --preset release --parallel $(JOBS) --target cbt_core cbt_rpc cbt_source cbt_tool

# What `make`, `make test` and `make demo` need; cmake/packages.txt names the groups of the others.
DEPS ?= build test demo
deps:  ## installs missing Debian packages, as root or with sudo (DEPS: groups of cmake/packages.txt)
	@cmake/install-packages.sh $(DEPS)

# In a tree that has been built: what changed, the tests of core, maps, sources and volumes with few
# random inputs, and the checks of the sources themselves.
quick:  ## what a change needs, in two minutes: unit tests, and checks of the sources
	@$(PACKAGES) build test
	@cmake --preset release -DCBT_BUILD_TESTS=ON $(if $(wildcard build/release/CMakeCache.txt),,-DCBT_BUILD_BENCH=OFF)
	@cmake --build --preset release --parallel $(JOBS) --target cbt_products cbt_unit_tests
	@CBT_PROPERTY_RUNS=30 ctest --preset release --parallel $(TEST_JOBS) --label-regex '^(unit|tools|lint)$$' --label-exclude '^slow$$'

debug:  ## unoptimised, with checks of the standard library, each file compiled by itself, and its tests
	$(call build,debug,build test bench)
	$(call ctest,debug)

clang:  ## as release, with clang, and its tests
	$(call build,clang,build test bench clang)
	$(call ctest,clang)

test-build:  ## what `make test` builds, and runs no test
	@$(PACKAGES) build test
	@cmake --preset release -DCBT_BUILD_TESTS=ON $(if $(wildcard build/release/CMakeCache.txt),,-DCBT_BUILD_BENCH=OFF)
	@cmake --build --preset release --parallel $(JOBS)

test:  ## the same as `make`, then builds and runs every test; installs what is missing
	@$(MAKE) --no-print-directory deps DEPS="build test"
	@$(MAKE) --no-print-directory test-build
	$(call ctest,release)

asan:  ## tests under the address and undefined-behaviour sanitizers
	$(call build,asan,build test)
	$(call ctest,asan)

# Core and sources only: the code that parses untrusted bytes. The tests' own code is not
# instrumented, and the libraries are the fuzzers'.
asan-core:  ## the same without gRPC, in the tree of the fuzzers
	@$(PACKAGES) build fuzz test
	@cmake --preset fuzz -DCBT_BUILD_TESTS=ON
	@cmake --build --preset fuzz --parallel $(JOBS)
	$(call ctest,fuzz)

tsan:  ## tests under the thread sanitizer
	$(call build,tsan,build test)
	$(call ctest,tsan)

# In one tree, so that only what a switch changes is compiled again. SWITCHES: names without CBT_WITH_.
SWITCHES ?=
switches:  ## libraries and command without each CBT_WITH_* in turn, and without all (SWITCHES: some of them)
	@$(PACKAGES) build test bench
	@tests/machines/switches.sh build/switches $(JOBS) $(SWITCHES)

coverage:  ## lines and branches that the tests reach
	$(call build,coverage,build test coverage)
	@tests/coverage/coverage.py build/coverage --jobs $(JOBS)

fuzz:  ## fuzzers in build/fuzz/bin, and their seeds
	@$(PACKAGES) build fuzz
	@cmake --preset fuzz $(if $(wildcard build/fuzz/CMakeCache.txt),,-DCBT_BUILD_TESTS=OFF)
	@cmake --build --preset fuzz --parallel $(JOBS) --target fuzzers
	@cbt=build/release/bin/cbtctl; fuzz/make_corpus.py --output build/fuzz/corpus \
	  $$(test -x $$cbt && echo --cbt $$cbt)

# Runs each fuzzer, or those that FUZZERS names, for FUZZ_SECONDS. FUZZ_KEEP keeps new seeds and
# crashes.
FUZZ_SECONDS ?= 3600
FUZZ_KEEP ?= build/fuzz/kept
FUZZERS ?=
fuzz-long: fuzz  ## runs them: FUZZ_SECONDS each (an hour), FUZZERS, FUZZ_KEEP
	@fuzz/run.sh build/fuzz/bin build/fuzz/corpus $(FUZZ_KEEP) $(FUZZ_SECONDS) $(FUZZERS)

# Checks that each fuzzer finds planted bugs.
fuzz-planted: fuzz  ## bugs of every kind, put there: does the fuzzer find each within a minute?
	@cbt=build/release/bin/cbtctl; fuzz/planted.py $$(test -x $$cbt && echo --cbt $$PWD/$$cbt)

# BENCH_FILTER: a regular expression of rows; BENCH_REPETITIONS: of each.
BENCH_REPETITIONS ?= 5
report = @python3 bench/report.py --output build/bench --repetitions $(BENCH_REPETITIONS) \
	  --filter '$(BENCH_FILTER)' $(1) \
	  --context compiler="$$($${CXX:-c++} --version | head -n 1), -O3" \
	  --context levels="$$(build/release/bin/cbtctl --version | sed -n 's/^simd levels available: //p')" \
	  --context commit="$$(git rev-parse --short HEAD 2>/dev/null)" \
	  build/release/bin/bench_*

bench-build:  ## what `make bench` runs, and runs nothing
	@$(PACKAGES) build bench
	@cmake --preset release -DCBT_BUILD_BENCH=ON $(if $(wildcard build/release/CMakeCache.txt),,-DCBT_BUILD_TESTS=OFF)
	@cmake --build --preset release --parallel $(JOBS) --target cbt_products benchmarks

bench: bench-build  ## runs the benchmarks: build/bench/report.md (BENCH_FILTER, BENCH_REPETITIONS)
	$(call report,)

bench-docs: bench-build  ## the same, and puts the tables into docs/generated/benchmarks.md
	$(call report,--document docs/generated/benchmarks.md)

# In the environment of `make python-env`. PYTHON_ROUNDS: more for a busy machine.
PYTHON_ROUNDS ?= 9
bench-python: bench-build python-env  ## Python against C++: tuples of a cursor, a call (PYTHON_ROUNDS)
	@run="python3 -B tests/python/run.py --build build/release --scratch build/bench/python"; \
	  $$run install && $$run ../../bench/python/border.py build/release/bin/bench_border --rounds $(PYTHON_ROUNDS)

# Runs each benchmark once to see that it still works, without the inputs of a quarter of a gigabyte.
bench-once: bench-build  ## every benchmark for a moment
	@for bench in build/release/bin/bench_*; do echo "$$bench"; \
	  said=$$($$bench --benchmark_min_time=0.01 '--benchmark_filter=-/(268435456|10000)/' 2>&1) || \
	    { echo "$$said"; exit 1; }; done

# Whole processes beside what a user would pick; bench/command/commands.py says which variables name
# peers. The modules are Debian's. BENCH_FOLDER: where the files lie. COMMAND: options, such as `--only list sidecar`.
BENCH_FOLDER ?= /dev/shm
COMMAND ?=
bench-command: test-build  ## cbtctl beside cmp, qemu-img, restic, rbd and the Go programs (COMMAND: options)
	@/usr/bin/python3 -B bench/command/commands.py build/release --folder $(BENCH_FOLDER) \
	  --json build/bench/command.json --markdown build/bench/command.md $(COMMAND)

# GROWTH: options of bench/growth/growth.py, such as `--only tenants --keep`.
GROWTH ?=
bench-growth: test-build  ## what operations cost as their work grows by 10 and 100: exponents, a picture (GROWTH: options)
	@/usr/bin/python3 -B bench/growth/growth.py build/release --output build/bench --folder $(BENCH_FOLDER) $(GROWTH)

bench-instructions: bench-build  ## instructions of the rows whose targets are missed, by callgrind (INSTRUCTIONS: options)
	@$(PACKAGES) test
	@/usr/bin/python3 -B bench/instructions.py build/release/bin $(INSTRUCTIONS)

# Images outside the page cache, on a private file system (FUSE) or in COLD_FOLDER. Run by hand.
bench-cold:  ## images that are not in the page cache (FUSE, or COLD_FOLDER)
	@$(PACKAGES) build bench bench-cold
	@cmake --preset release -DCBT_BUILD_BENCH=ON $(if $(wildcard build/release/CMakeCache.txt),,-DCBT_BUILD_TESTS=OFF)
	@cmake --build --preset release --parallel $(JOBS) --target cold_images
	@build/release/bin/cold_images $(if $(COLD_FOLDER),--folder=$(COLD_FOLDER))

# Images in the page cache. Run by hand.
bench-cached:  ## ways to compare images in the page cache (CACHED_FOLDER)
	@$(PACKAGES) build bench bench-cold
	@cmake --preset release -DCBT_BUILD_BENCH=ON $(if $(wildcard build/release/CMakeCache.txt),,-DCBT_BUILD_TESTS=OFF)
	@cmake --build --preset release --parallel $(JOBS) --target cached_images
	@build/release/bin/cached_images $(if $(CACHED_FOLDER),--folder=$(CACHED_FOLDER))

# Says what is missing before anything is built.
need-%:
	@$(PACKAGES) $*

emulation: need-emulation all  ## kernels under qemu: 64-bit ARM, old x86-64 processors
	@tests/emulation/run.sh . build/emulation build/release/bin/cbtctl

# Needs npm, and its registry the first time.
interop-js: all  ## grpc-js as client and as plugin (needs npm)
	@mkdir -p build/js
	@test -d build/js/node_modules/@grpc/grpc-js || \
	  npm install --prefix build/js --no-audit --no-fund --silent @grpc/grpc-js
	@NODE_PATH=$(CURDIR)/build/js/node_modules node tests/interop/js_test.js build/release/bin/cbtctl

# Plants faults and lists those that no test notices: MUTANTS of them (200, about an hour). Each run
# uses a new seed and prints it; MUTATION_SEED repeats one.
MUTANTS ?= 200
MUTATION_SEED ?= $(shell od -An -N3 -tu4 /dev/urandom | tr -d ' ')
mutation:  ## planted faults: which of them does no test notice? (MUTANTS, MUTATION_SEED)
	@$(PACKAGES) build test
	@tests/mutation/mutate.py --mutants $(MUTANTS) --seed $(MUTATION_SEED)

# Can every test fail? One fault for each disaster and each kind of test, in a copy of the tree;
# PLANTED: only faults whose name contains this.
planted:  ## one fault for each kind of test: each must turn its test red (PLANTED)
	@$(PACKAGES) build test
	@tests/python/environment.sh >/dev/null
	@tests/planted/plant.py --jobs $(JOBS) --only '$(PLANTED)'

# The formats' golden files on 64-bit ARM; downloads abseil's arm64 packages from the mirror.
golden-arm64:  ## the file formats on 64-bit ARM under qemu
	@$(PACKAGES) build emulation
	@tests/emulation/run_golden.sh . build/golden-arm64

# A real Kubernetes control plane and storage components for the tests, which use it from then on: a
# quarter of an hour on two cores, once. ENVTEST: some of the parts that tests/envtest/build.sh names.
# ENVTEST_KUBERNETES=1.36 or 1.35: an older API server. ENVTEST_SNAPSHOTTER=8.6: older snapshot controllers.
# Prints the folder. KUBEBUILDER_ASSETS names another one for the tests.
ENVTEST ?=
envtest:  ## a real Kubernetes control plane for the tests, from Go modules (ENVTEST: only these parts)
	@tests/envtest/build.sh $(ENVTEST)

# Of the versions in bindings/go/go.sum and its neighbours, into the module cache of Go. Needs Go 1.26.
go-modules:  ## the Go modules of bindings/go and of the examples, for the tests that need them
	@tests/go/modules.sh

# Readers of Arrow streams, grpcio and mypy of pinned versions for the tests of bindings/python, which use
# them from then on. Prints the folder. PYTHON names another interpreter.
python-env:  ## a virtual environment for the tests of the Python package, from the package index of pip
	@$(PACKAGES) python
	@tests/python/environment.sh

# The committed tree against the newest stable Debian, in NEWEST_ROOT: needs root, debootstrap and a mirror.
NEWEST_ROOT ?= /var/tmp/cbt-newest
NEWEST_SUITE ?= trixie
newest-debian:  ## builds and tests against the newest Debian (root, debootstrap)
	@$(PACKAGES) newest
	@tests/machines/newest.sh . $(NEWEST_ROOT) $(NEWEST_SUITE)

# The code that uses CRoaring, with Debian's newest package of it, downloaded from the mirror.
newest-croaring:  ## the test and the benchmarks that know CRoaring, with its newest version
	@$(PACKAGES) build test bench
	@tests/machines/newest_croaring.sh . build/croaring

# The figures of docs/generated/scorecard.md. SCORECARD: --rows 1,7 for some, --all to include those that
# take minutes to an hour.
SCORECARD ?=
scorecard: test-build  ## what is promised, in figures (SCORECARD=--all: all of them, hours)
	@tests/scorecard/scorecard.py $(SCORECARD)

# A real Ceph on the loopback interface; needs 100 MB of packages.
ceph: need-ceph all  ## RBD sources against a real Ceph on the loopback interface
	@tests/ceph/run.sh build/release/bin/cbtctl . build/release

# Mixed load on `serve` and `relay` for SOAK_SECONDS (an hour); build/soak keeps the findings.
SOAK_SECONDS ?= 3600
soak_test = @/usr/bin/python3 -B tests/soak/$(1) build/release/bin/cbtctl build/release/tests/interop $(2)
soak: test-build  ## mixed load on the servers: SOAK_SECONDS (an hour), into build/soak
	$(call soak_test,soak.py,--seconds $(SOAK_SECONDS) --output build/soak)

# A thousand slow readers, ten thousand that vanish: LOAD_OPTIONS, see tests/soak/load.py.
load: test-build  ## what slow, stalled and vanishing clients cost
	$(call soak_test,load.py,build/release/bin/slow_readers $(LOAD_OPTIONS))

# Once; the tests fetch nothing, and skip what they miss.
rust-crates:  ## the crates of the plugin in bindings/rust, into cargo's cache
	@cargo fetch --locked --manifest-path bindings/rust/plugin/Cargo.toml

demo:  ## two images to a verified change stream, shown; installs what is missing
	@$(MAKE) --no-print-directory deps DEPS="build demo"
	@$(MAKE) --no-print-directory all
	@tests/demo/demo.sh build/release/bin

demo-driver:  ## a volume of cbt-driver, backed up while it is in use
	@$(PACKAGES) build demo-driver
	@cmake --preset release $(libraries_only)
	@cmake --build --preset release --parallel $(JOBS) --target cbt_tool cbt_driver_tool cbt_nbdkit_plugin
	@/usr/bin/python3 tests/demo/driver/demo.py build/release/bin/cbtctl build/release/lib/nbdkit-cbt-plugin.so

demo-backup:  ## a volume into a bucket of radosgw, where Ceph is installed, and back by restic
	@$(PACKAGES) build demo-backup
	@cmake --preset release $(libraries_only)
	@cmake --build --preset release --parallel $(JOBS) --target cbt_tool
	@tests/demo/backup/demo.sh build/release/bin

# On a node of `make envtest`, as root, with Ceph's packages; says what is missing otherwise.
demo-cluster: all  ## a cluster: COSI gives a bucket, a claim is backed up into it and restored
	@$(PACKAGES) demo-cluster demo-driver envtest-node
	@$(use_envtest) /usr/bin/python3 -B tests/demo/cluster/demo.py build/release/bin

nodes: test-build  ## tests of minutes on a Kubernetes node (root, `make envtest`): COSI under kubelet, backups, the demo
	@$(use_envtest) CBT_TEST_SCALE=2 ctest --preset release --tests-regex '^(cosi/real_node_test|deploy/backup_test|demo_cluster)$$'

lint: need-lint all  ## clang-format (check only) and cppcheck
	@cmake/lint.sh build/release $(JOBS) format cppcheck

# clang-tidy of the whole of src/ and programs/, half an hour; part of `make nightly`.
tidy: need-lint all  ## clang-tidy of all of src/ and programs/ (half an hour)
	@cmake/lint.sh build/release $(JOBS) tidy

# Checks that take hours. Continues after failures, and ends with a list of what ran.
nightly:  ## what takes hours: every tree and its tests, clang-tidy, planted faults, long fuzzing
	@.ci/nightly

# The documents and the public headers as one site: build/docs/html/index.html.
docs:  ## documents and public headers as one site: build/docs/html/index.html
	@$(PACKAGES) docs
	@docs/site/build.py --output build/docs

# libcbt-dev, cbt and cbt-doc in build/deb/packages.
deb:  ## Debian packages of libraries, programs and documents: build/deb/packages
	@$(PACKAGES) build docs deb
	@debian/build.sh build/deb $(JOBS)

# The servers of a cluster, the driver and the command, as container images: OCI archives, built without a
# daemon, with lists of their contents. The tag is the version.
IMAGE_DIR ?= build/image
image: all  ## container images of sidecar, driver and command, and their SBOMs: build/image
	@$(PACKAGES) build
	@deploy/image/build.py --program build/release/bin/cbt-cluster --output $(IMAGE_DIR)/csi-snapshot-metadata.tar
	@deploy/image/build.py --program build/release/bin/cbtctl --output $(IMAGE_DIR)/cbtctl.tar
	@deploy/image/build.py --program build/release/bin/cbt-driver --output $(IMAGE_DIR)/csi-driver.tar

# Cross-built against this Debian's arm64 packages, which are unpacked below build/foreign; joined with
# those of `make image` in build/image/all, and started under qemu.
IMAGES := csi-snapshot-metadata cbtctl csi-driver
image-arm64: need-emulation image  ## the same for arm64, cross-built: build/image/arm64; both in build/image/all
	@deploy/image/foreign.sh arm64 build/foreign/arm64 $(IMAGE_DIR)/arm64 $(JOBS)
	@python3 -B tests/emulation/images.py build/release/bin/cbtctl $(IMAGE_DIR)/arm64
	@for image in $(IMAGES); do \
	  deploy/image/build.py --join $(IMAGE_DIR)/all/$$image.tar $(IMAGE_DIR)/$$image.tar $(IMAGE_DIR)/arm64/$$image.tar || exit; done

# Of the folders in deploy/kubernetes: needs kubectl, which KUBECTL may name.
chart:  ## charts for Helm: build/chart
	@/usr/bin/python3 -B deploy/chart/chart.py --output build/chart

# Sources, manifests with pinned images, images of both architectures, SBOMs, Debian packages, bindings,
# changes, checksums. PACKAGES_MORE: further files, such as wheels. FOREIGN: the other architectures, or
# nothing. The tree must be committed.
REGISTRY ?= registry.example.com/libcbt
PACKAGES_MORE ?=
FOREIGN ?= arm64
release: all deb $(patsubst %,image-%,$(FOREIGN))  ## everything that a release has: build/dist (REGISTRY, FOREIGN, PACKAGES_MORE)
	@deploy/release/release.py --output build/dist --registry $(REGISTRY) \
	  $(foreach arch,$(FOREIGN),--foreign build/foreign/$(arch)) \
	  --packages build/deb/packages/*.deb $(PACKAGES_MORE)

# The packages of `make deb` in a new Debian in DEB_ROOT: needs root, mmdebstrap and a mirror.
DEB_ROOT ?= /var/tmp/cbt-deb-test
deb-test: need-deb-test deb  ## installs, uses and removes them in a clean Debian (root, mmdebstrap)
	@debian/test.sh build/deb/packages $(DEB_ROOT)

install: all  ## into PREFIX (default /usr/local), below DESTDIR if set
	@cmake --install build/release --prefix $(PREFIX)
	@test -n "$(DESTDIR)" || echo "programs find libcbt.so.1 after: ldconfig (as root), or LD_LIBRARY_PATH=$(PREFIX)/lib"

clean:  ## removes build/
	@cmake -E rm -rf build

help:  ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1	\2/p' Makefile | while IFS='	' read -r target text; do \
	  printf 'make %-16s %s\n' "$$target" "$$text"; done
