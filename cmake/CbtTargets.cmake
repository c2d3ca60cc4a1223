# Helpers for defining targets.

# What most files of every library read. It is half of their compile time.
set(cbt_library_headers <absl/status/statusor.h> <absl/strings/str_cat.h> <functional> <memory> <string> <vector>)

# cbt_add_library(<core|source|rpc> <link libraries...>): static library cbt_<name>, cbt::<name>.
# Folders under src/ add their files with target_sources().
function(cbt_add_library name)
  add_library(cbt_${name} STATIC)
  add_library(cbt::${name} ALIAS cbt_${name})
  set_target_properties(cbt_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  target_compile_features(cbt_${name} PUBLIC cxx_std_20)
  target_include_directories(cbt_${name}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_BINARY_DIR}/generated)
  target_link_libraries(cbt_${name} PRIVATE $<BUILD_INTERFACE:cbt_private_flags>)
  target_link_libraries(cbt_${name} PUBLIC ${ARGN})
  # libcbt.so.1 is made of these, and leaves out what its functions do not reach.
  if(name MATCHES "^(core|source|rpc)$")
    target_compile_options(cbt_${name} PRIVATE $<$<CONFIG:Release>:-ffunction-sections>)
  endif()
endfunction()

# cbt_precompile(<target> <headers...>): precompiles them once for all files of the target.
function(cbt_precompile target)
  if(CBT_PRECOMPILE)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# cbt_unite_rooms(<targets...>): with CBT_UNITY, compiles the files of one folder as one. So only
# names of one folder meet, and a new file changes nothing for other folders.
function(cbt_unite_rooms)
  foreach(target IN LISTS ARGN)
    if(NOT TARGET ${target})
      continue()
    endif()
    set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
    get_target_property(sources ${target} SOURCES)
    get_target_property(folder ${target} SOURCE_DIR)
    foreach(source IN LISTS sources)
      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder} NORMALIZE)
      cmake_path(IS_PREFIX PROJECT_SOURCE_DIR ${source} NORMALIZE ours)
      if(ours AND source MATCHES "\\.cc$")
        cmake_path(GET source PARENT_PATH room)
        cmake_path(RELATIVE_PATH room BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
        string(MAKE_C_IDENTIFIER ${room} room)
        set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${room})
      endif()
    endforeach()
  endforeach()
endfunction()

# cbt_add_tests(<program> FILES <room/name_test...> [LIBS <libraries...>] [LABELS <labels...>]): one
# GoogleTest program from tests/<room/name_test>.cc, and a ctest entry of that name for each file.
function(cbt_add_tests program)
  cmake_parse_arguments(TEST "" "" "FILES;LIBS;LABELS" ${ARGN})
  list(TRANSFORM TEST_FILES PREPEND ${PROJECT_SOURCE_DIR}/tests/ OUTPUT_VARIABLE sources)
  list(TRANSFORM sources APPEND .cc)
  add_executable(${program} ${sources})
  set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  if(NOT CBT_SANITIZE_TESTS)
    set_target_properties(${program} PROPERTIES CBT_PLAIN ON)
    # although the libraries are sanitized
    target_compile_definitions(${program} PRIVATE CBT_TEST_PLAIN)
  endif()
  target_include_directories(${program} PRIVATE
    ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src ${PROJECT_BINARY_DIR}/generated)
  target_link_libraries(${program} PRIVATE ${TEST_LIBS} cbt_private_flags cbt_test_main)
  list(LENGTH sources files)
  if(files GREATER 2)
    cbt_precompile(${program} ${cbt_test_headers})
  endif()
  # The library under test is optimised; more than -O1 for the tests' own code costs minutes of
  # compile time and gains nothing.
  target_compile_options(${program} PRIVATE $<$<CONFIG:Release>:-O1>)
  # GCC reports false overlaps and bounds in its own std::string when that is precompiled (its bugs
  # 105329, 105651).
  target_compile_options(${program} PRIVATE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds> $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
    $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow>)
  # With sanitizers it takes the empty std::stop_source for one that is read.
  if(CBT_SANITIZE)
    target_compile_options(${program} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  endif()
  if("unit" IN_LIST TEST_LABELS)
    add_dependencies(cbt_unit_tests ${program})
  endif()
  foreach(file IN LISTS TEST_FILES)
    add_test(NAME ${file} COMMAND ${program} --file=${file})
    set_tests_properties(${file} PROPERTIES LABELS "${TEST_LABELS}" TIMEOUT 600
                         ENVIRONMENT "RC_PARAMS=max_success=${CBT_PROPERTY_RUNS}")
  endforeach()
endfunction()

# cbt_add_bench(<folder/name_bench> [LIBS <libraries...>]): bench_<name> from bench/<path>.cc.
function(cbt_add_bench path)
  cmake_parse_arguments(BENCH "" "" "LIBS" ${ARGN})
  get_filename_component(name ${path} NAME)
  string(REGEX REPLACE "_bench$" "" name ${name})
  add_executable(bench_${name} ${PROJECT_SOURCE_DIR}/bench/${path}.cc)
  target_include_directories(bench_${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(bench_${name} PRIVATE ${BENCH_LIBS} cbt_private_flags
                                              benchmark::benchmark benchmark::benchmark_main)
endfunction()

# cbt_add_messages(<name>): the contracts' messages as generated by protoc, a static library for
# tests and benchmarks.
function(cbt_add_messages name)
  set(proto ${PROJECT_SOURCE_DIR}/src/proto)
  set(generated "")
  foreach(file cosi_v1alpha1 csi first_revision list_snapshot_deltas provider snapshotmetadata)
    set(outputs ${CMAKE_CURRENT_BINARY_DIR}/${file}.pb.cc ${CMAKE_CURRENT_BINARY_DIR}/${file}.pb.h)
    add_custom_command(OUTPUT ${outputs}
      COMMAND protobuf::protoc --proto_path=${proto} --cpp_out=${CMAKE_CURRENT_BINARY_DIR}
              ${file}.proto
      DEPENDS ${proto}/${file}.proto)
    list(APPEND generated ${outputs})
  endforeach()
  add_library(${name} STATIC ${generated})
  # Each file of protoc's has the same names.
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
  target_include_directories(${name} SYSTEM PUBLIC ${CMAKE_CURRENT_BINARY_DIR})
  target_link_libraries(${name} PUBLIC protobuf::libprotobuf)
  target_compile_features(${name} PUBLIC cxx_std_20)
endfunction()

# cbt_add_fuzzer(<room/name> [COVERS_HEADERS] [LIBS <libraries...>]): fuzz_<name> from
# fuzz/<room/name>_fuzz.cc. Only the libraries are instrumented for coverage: the oracle's coverage
# teaches the engine nothing and takes most of the time. COVERS_HEADERS is for code under test in a
# header.
function(cbt_add_fuzzer path)
  get_filename_component(name ${path} NAME)
  cmake_parse_arguments(FUZZ "COVERS_HEADERS" "" "LIBS" ${ARGN})
  add_executable(fuzz_${name} ${PROJECT_SOURCE_DIR}/fuzz/${path}_fuzz.cc
                              ${PROJECT_SOURCE_DIR}/fuzz/support/sanitizer_options.cc)
  target_include_directories(fuzz_${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(fuzz_${name} PRIVATE ${FUZZ_LIBS} cbt_private_flags)
  if(NOT FUZZ_COVERS_HEADERS)
    target_compile_options(fuzz_${name} PRIVATE
      -fno-sanitize-coverage=edge,bb,func,trace-cmp,inline-8bit-counters,pc-table,indirect-calls)
  endif()
  # An engine other than clang's own: its flag or library.
  separate_arguments(engine UNIX_COMMAND "${CBT_FUZZING_ENGINE}")
  target_link_libraries(fuzz_${name} PRIVATE ${engine})
endfunction()
