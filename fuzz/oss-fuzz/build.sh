#!/bin/bash -eu
# What OSS-Fuzz runs: compilers and flags come in CC, CXX, CFLAGS, CXXFLAGS and
# LIB_FUZZING_ENGINE; fuzzers, seeds and dictionaries go to $OUT. The libraries of the system that
# the fuzzers link are put beside them, because they run elsewhere.
cd "$SRC/libcbt"
build=$WORK/libcbt
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
  patchelf --set-rpath '$ORIGIN/lib' "$OUT/$name"
  seeds=$WORK/corpus/${name#fuzz_}
  [[ -d $seeds ]] && (cd "$seeds" && zip -q -r "$OUT/${name}_seed_corpus.zip" .)
  dictionary=fuzz/dictionaries/${name#fuzz_}.dict
  [[ -f $dictionary ]] && cp "$dictionary" "$OUT/$name.dict"
done
