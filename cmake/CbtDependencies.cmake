# What the libraries and the tests link; here, so that every folder sees the same targets.
find_package(absl CONFIG REQUIRED)
find_package(xsimd CONFIG REQUIRED)
find_package(Threads REQUIRED)
# Compiled in whole; nothing of it is linked, and consumers never see it.
find_path(CBT_XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
if(CBT_BUILD_TESTS OR CBT_BUILD_BENCH)
  # CRoaring is a witness and a peer only; Debian's package has no CMake file.
  find_library(CBT_ROARING_LIBRARY roaring REQUIRED)
endif()
if(CBT_WITH_RPC)
  # Debian's protobuf has no config file, and gRPC's config asks for its targets.
  find_package(Protobuf MODULE REQUIRED)
  find_package(gRPC CONFIG REQUIRED)
  # The one that gRPC is built with.
  find_package(OpenSSL REQUIRED)
  # cbt::ops alone.
  find_package(prometheus-cpp CONFIG REQUIRED)
  find_package(spdlog CONFIG REQUIRED)
endif()
