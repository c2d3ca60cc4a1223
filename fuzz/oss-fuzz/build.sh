#!/bin/bash -eu
# The build for OSS-Fuzz: compilers and flags come in CC, CXX, CFLAGS, CXXFLAGS and
# LIB_FUZZING_ENGINE; fuzzers, seeds and dictionaries go to $OUT. The system libraries that the
# fuzzers link are copied next to them, because they run elsewhere.
cd "$SRC/libcbt"
build=$WORK/libcbt
# gRPC, protobuf and Abseil are system packages, built with the system's C++ library.
CXXFLAGS=${CXXFLAGS//-stdlib=libc++/}
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX" -DCMAKE_CXX_FLAGS="$CXXFLAGS" \
  -DCBT_BUILD_FUZZERS=ON -DCBT_FUZZING_ENGINE="$LIB_FUZZING_ENGINE" \
  -DCBT_BUILD_TESTS=OFF -DCBT_BUILD_BENCH=OFF -DCBT_BUILD_TOOLS=OFF -DCBT_INSTALL=OFF
cmake --build "$build" --target fuzzers

fuzz/make_corpus.py --output "$WORK/corpus"
mkdir -p "$OUT/lib"
for fuzzer in "$build"/bin/fuzz_*; do
  name=$(basename "$fuzzer")
  cp "$fuzzer" "$OUT/"
  ldd "$fuzzer" | awk '$3 ~ /^\// && $1 !~ /^(libc|libm|libpthread|libdl|librt|ld-linux.*)\.so/ {print $3}' |
    xargs -r cp -n -t "$OUT/lib"
  # RPATH, not RUNPATH: it applies to the libraries' own dependencies too.
  patchelf --force-rpath --set-rpath '$ORIGIN/lib' "$OUT/$name"
  seeds=$WORK/corpus/${name#fuzz_}
  if [[ -d $seeds ]]; then (cd "$seeds" && zip -q -r "$OUT/${name}_seed_corpus.zip" .); fi
  dictionary=fuzz/dictionaries/${name#fuzz_}.dict
  if [[ -f $dictionary ]]; then cp "$dictionary" "$OUT/$name.dict"; fi
done
