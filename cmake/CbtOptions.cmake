# Every option of the build. Options for developers of this project are off when it is built as part
# of another one.
include(CMakeDependentOption)
option(CBT_WITH_RPC "Build cbt::rpc, servers and clients of gRPC's protocol" ON)
cmake_dependent_option(CBT_WITH_GRPC "Build cbt::grpc, services for gRPC servers of others" ON CBT_WITH_RPC OFF)
option(CBT_WITH_KUBE "Build cbt::kube, a client of the Kubernetes API, where its libraries are found" ON)
option(CBT_WITH_ROARING "Offer cbt::roaring, the bridge to CRoaring's bitmaps (headers only)" ON)
option(CBT_WITH_C "Build libcbt.so and libcbt.a, the C interface; needs cbt::rpc" ${PROJECT_IS_TOP_LEVEL})
option(CBT_BUILD_TOOLS "Build the cbtctl command" ${PROJECT_IS_TOP_LEVEL})
option(CBT_STATIC_LIBRARIES "Programs contain abseil and yaml-cpp where the system has archives of them" ON)
option(CBT_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
cmake_dependent_option(CBT_TEST_RPC "Build the tests of cbt::rpc and cbt::grpc too" ON CBT_WITH_GRPC OFF)
option(CBT_BUILD_BENCH "Build the benchmarks" ${PROJECT_IS_TOP_LEVEL})
option(CBT_BUILD_FUZZERS "Build the libFuzzer targets (clang)" OFF)
option(CBT_INSTALL "Make install targets" ${PROJECT_IS_TOP_LEVEL})
set(CBT_ZSH_FOLDER site-functions CACHE STRING "Folder of completions below share/zsh")
option(CBT_WERROR "Treat warnings as errors" OFF)
option(CBT_PRECOMPILE "Read the headers of abseil, gRPC and GoogleTest once for many files" ON)
option(CBT_UNITY "Compile the files of a folder as one, in half of the time" ${PROJECT_IS_TOP_LEVEL})
set(CBT_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize takes them (address,undefined or thread)")
option(CBT_SANITIZE_TESTS "Sanitize the tests' own code as well as what they test" ON)
set(CBT_FUZZING_ENGINE "-fsanitize=fuzzer" CACHE STRING "What links a fuzzer to its engine")
set(CBT_PROPERTY_RUNS 1000 CACHE STRING "Random inputs that each property test tries")

# The build type is the enclosing project's choice.
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
include(GNUInstallDirs)

set(CMAKE_UNITY_BUILD ${CBT_UNITY})

# A compiler cache, if there is one. It includes the contents of precompiled headers in its
# comparison.
find_program(CBT_CCACHE ccache)
if(CBT_CCACHE AND PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CBT_CCACHE})
endif()
