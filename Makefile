# Forwards to CMake: each target is one or two presets (CMakePresets.json). Every target first
# installs the Debian packages that it needs and that are missing (cmake/packages.txt).

PACKAGES := cmake/install-packages.sh
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local

# $(call build,preset,package groups): the groups of the preset's tree, its configuration, its build.
define build
	@$(PACKAGES) $(2)
	@cmake --preset $(1)
	@cmake --build --preset $(1) --parallel $(JOBS)
endef

# $(call ctest,preset); LABEL_EXCLUDE is a regular expression of test labels to leave out.
ctest = @ctest --preset $(1) --parallel $(JOBS) $(if $(LABEL_EXCLUDE),--label-exclude '$(LABEL_EXCLUDE)')

release_packages := build test bench

.PHONY: all debug clang test asan tsan fuzz bench demo lint install clean help
# The trees share the machine, not each other: one after the other, also under -j.
.NOTPARALLEL:

all:
	$(call build,release,$(release_packages))

debug:
	$(call build,debug,$(release_packages))
	$(call ctest,debug)

clang:
	$(call build,clang,$(release_packages) clang)
	$(call ctest,clang)

test: all
	$(call ctest,release)

asan:
	$(call build,asan,build test)
	$(call ctest,asan)

tsan:
	$(call build,tsan,build test)
	$(call ctest,tsan)

fuzz:
	$(call build,fuzz,build fuzz)

bench: all
	@set -e; for bench in build/release/bin/bench_*; do "$$bench"; done

demo: all
	@$(PACKAGES) demo
	@tests/demo/demo.sh build/release/bin

lint: all
	@$(PACKAGES) lint
	@cmake/lint.sh build/release $(JOBS)

install: all
	@cmake --install build/release --prefix $(PREFIX)

clean:
	@cmake -E rm -rf build

help:
	@echo 'make            build/release: programs in build/release/bin'
	@echo 'make test       the same, then every test'
	@echo 'make demo       two images to a verified change stream, shown'
	@echo 'make bench      runs the benchmarks'
	@echo 'make fuzz       fuzzers in build/fuzz/bin'
	@echo 'make asan       tests under the address and undefined-behaviour sanitizers'
	@echo 'make tsan       tests under the thread sanitizer'
	@echo 'make debug      unoptimised, with checks of the standard library, and its tests'
	@echo 'make clang      as release, with clang, and its tests'
	@echo 'make lint       clang-format (check only) and clang-tidy'
	@echo 'make install    into PREFIX (default /usr/local), below DESTDIR if set'
	@echo 'make clean      removes build/'
