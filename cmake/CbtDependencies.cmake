# The dependencies of libraries and tests, found here so that every folder sees the same targets.
# They are global: a project that adds this one as a subfolder links libraries that name them.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
find_package(absl CONFIG REQUIRED)
find_package(xsimd CONFIG REQUIRED)
find_package(Threads REQUIRED)
# Compiled in: nothing is linked, and consumers never see it.
find_path(CBT_XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
# Libraries for some formats of cbt::source. Each is used if it is found and can be left out with
# -DCBT_WITH_<NAME>=OFF; opening a source that needs an absent one is an error that names it.
find_package(PkgConfig REQUIRED)
set(cbt_source_libraries "")  # <NAME>=<pkg-config module> of those in use
foreach(pair EXPAT=expat LIBNBD=libnbd LIBEXT2FS=ext2fs)
  string(REGEX MATCH "^(.*)=(.*)$" pair ${pair})
  set(name ${CMAKE_MATCH_1})
  set(module ${CMAKE_MATCH_2})
  option(CBT_WITH_${name} "Use ${module} where it is found" ON)
  if(CBT_WITH_${name})
    pkg_check_modules(CBT_${name} QUIET IMPORTED_TARGET GLOBAL ${module})
  endif()
  if(CBT_WITH_${name} AND CBT_${name}_FOUND)
    list(APPEND cbt_source_libraries ${name}=${module})
  else()
    message(STATUS "cbt: without ${module}, so without the sources that need it")
  endif()
endforeach()
option(CBT_WITH_RAPIDJSON "Use RapidJSON where it is found" ON)
if(CBT_WITH_RAPIDJSON)
  # Header-only, and only for our own parsers: consumers never see it.
  find_path(CBT_RAPIDJSON_INCLUDE_DIR rapidjson/reader.h)
endif()
set(CBT_READS_LISTS OFF)  # both libraries, so that every list can be read
if(CBT_WITH_RAPIDJSON AND CBT_RAPIDJSON_INCLUDE_DIR AND CBT_WITH_EXPAT AND CBT_EXPAT_FOUND)
  set(CBT_READS_LISTS ON)
endif()
if(NOT CBT_WITH_RAPIDJSON OR NOT CBT_RAPIDJSON_INCLUDE_DIR)
  message(STATUS "cbt: without RapidJSON, so without the sources that need it")
endif()
if(CBT_BUILD_TESTS OR CBT_BUILD_BENCH)
  # CRoaring is only a reference for tests and a peer for benchmarks; Debian's package has no CMake
  # file.
  find_library(CBT_ROARING_LIBRARY roaring REQUIRED)
endif()
if(CBT_WITH_RPC)
  # protoc describes the services for reflection. Debian's protobuf has no config file.
  find_package(Protobuf MODULE REQUIRED)
  find_package(OpenSSL REQUIRED)
  pkg_check_modules(CBT_NGHTTP2 REQUIRED IMPORTED_TARGET GLOBAL libnghttp2)
  # Newer than 1.52, but distributions backport it.
  include(CheckCXXSymbolExists)
  set(CMAKE_REQUIRED_LIBRARIES PkgConfig::CBT_NGHTTP2)
  check_cxx_symbol_exists(nghttp2_option_set_stream_reset_rate_limit nghttp2/nghttp2.h CBT_NGHTTP2_HAS_RESET_LIMIT)
  unset(CMAKE_REQUIRED_LIBRARIES)
  # For cbt::grpc, tests and benchmarks. gRPC's config requires protobuf's targets.
  if(CBT_WITH_GRPC OR CBT_TEST_RPC OR CBT_BUILD_BENCH)
    find_package(gRPC CONFIG REQUIRED)
  endif()
  # Only for cbt::ops.
  find_package(prometheus-cpp CONFIG REQUIRED)
  find_package(spdlog CONFIG REQUIRED)
endif()
unset(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL)
