# What `cmake --install` provides: headers, static libraries, a CMake package with components, a
# pkg-config file for each library, the contracts' .proto files, and the documents.
#
# Every component has its own export set, so that the files for a consumer of core never mention
# gRPC. Dependencies are derived from the targets: nothing is listed a second time here.
include(CMakePackageConfigHelpers)

set(cbt_components core source)
if(CBT_WITH_ROARING)
  list(APPEND cbt_components roaring)
endif()
if(CBT_WITH_RPC)
  list(APPEND cbt_components rpc ops)
endif()
if(CBT_WITH_GRPC)
  list(APPEND cbt_components grpc)
endif()
if(CBT_HAS_KUBE)
  list(APPEND cbt_components kube)
endif()
set(cbt_kube_on_rpc "")
if(CBT_HAS_KUBE AND CBT_WITH_RPC)
  set(cbt_kube_on_rpc kube)
endif()

set(cbt_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/cbt)
set(cbt_pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# pkg-config derives the prefix from the file's own path, so that an installed tree can be moved.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(cbt_pc_prefix ${CMAKE_INSTALL_PREFIX})
  set(cbt_pc_libdir ${CMAKE_INSTALL_LIBDIR})
else()
  file(RELATIVE_PATH up "/prefix/${cbt_pkgconfig_dir}" "/prefix")
  string(REGEX REPLACE "/$" "" up "${up}")
  set(cbt_pc_prefix "\${pcfiledir}/${up}")
  set(cbt_pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
if(IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(cbt_pc_includedir ${CMAKE_INSTALL_INCLUDEDIR})
else()
  set(cbt_pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()

# Translates the link libraries of target cbt_<component> into pkg-config's fields: PC_REQUIRES and
# PC_LIBS. The libraries are static, so private dependencies count as well; only our build-interface
# targets are excluded.
function(cbt_pkgconfig_dependencies component)
  get_target_property(links cbt_${component} INTERFACE_LINK_LIBRARIES)
  set(requires "")
  set(libs "")
  foreach(link IN LISTS links)
    string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" link "${link}")
    string(REGEX REPLACE "^\\$<INSTALL_INTERFACE:(.*)>$" "\\1" link "${link}")
    if(link MATCHES "^\\$<BUILD_INTERFACE:")
      continue()
    elseif(link MATCHES "^cbt(_|::)(core|source|rpc)$")
      list(APPEND requires cbt-${CMAKE_MATCH_2})
    elseif(link MATCHES "^absl::(.+)$")
      list(APPEND requires absl_${CMAKE_MATCH_1})
    elseif(link MATCHES "^gRPC::(grpc|grpc\\+\\+)$")
      list(APPEND requires ${CMAKE_MATCH_1})
    elseif(link MATCHES "^gRPC::(.+)$")
      list(APPEND libs -l${CMAKE_MATCH_1})  # has no .pc file of its own
    elseif(link STREQUAL "prometheus-cpp::core")
      list(APPEND requires prometheus-cpp-core)
    elseif(link STREQUAL "OpenSSL::Crypto")
      list(APPEND requires libcrypto)
    elseif(link STREQUAL "protobuf::libprotobuf")
      list(APPEND requires protobuf)
    elseif(link STREQUAL "OpenSSL::SSL")
      list(APPEND requires libssl)
    elseif(link STREQUAL "PkgConfig::CBT_NGHTTP2")
      list(APPEND requires libnghttp2)
    elseif(link MATCHES "^PkgConfig::CBT_(.+)$")
      # Saved from the match of NAME=module, because the next match overwrites it.
      set(library ${CMAKE_MATCH_1})
      foreach(pair IN LISTS cbt_source_libraries cbt_kube_libraries)
        if(pair MATCHES "^${library}=(.+)$")
          list(APPEND requires ${CMAKE_MATCH_1})
        endif()
      endforeach()
    elseif(link STREQUAL "Threads::Threads")
      list(APPEND libs -pthread)
    else()
      message(FATAL_ERROR "CbtInstall: cbt_${component} links ${link}; say what it is to pkg-config")
    endif()
  endforeach()
  list(JOIN requires " " requires)
  list(JOIN libs " " libs)
  set(PC_REQUIRES "${requires}" PARENT_SCOPE)
  set(PC_LIBS "${libs}" PARENT_SCOPE)
endfunction()

set(PC_DESCRIPTION_core "Changed-block tracking: extents, cursors, transforms, encoding")
set(PC_DESCRIPTION_source "Changed-block tracking: disk images as change sources")
set(PC_DESCRIPTION_roaring "Changed-block tracking: change maps to and from CRoaring's bitmaps")
set(PC_DESCRIPTION_rpc "Changed-block tracking: service, client and relay of gRPC's protocol")
set(PC_DESCRIPTION_grpc "Changed-block tracking: services for a gRPC server")
set(PC_DESCRIPTION_kube "Changed-block tracking: a client of the Kubernetes API")
set(PC_DESCRIPTION_ops "Changed-block tracking: metrics and logs of services")

foreach(component IN LISTS cbt_components)
  install(TARGETS cbt_${component} EXPORT cbt-${component}
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT cbt-${component} NAMESPACE cbt:: DESTINATION ${cbt_cmake_dir}
          FILE cbt-${component}-targets.cmake)

  cbt_pkgconfig_dependencies(${component})
  set(PC_NAME cbt-${component})
  set(PC_DESCRIPTION "${PC_DESCRIPTION_${component}} (C++20)")
  if(component STREQUAL "roaring")
    set(PC_LIBS "-lroaring")
  else()
    get_target_property(library cbt_${component} OUTPUT_NAME)
    if(NOT library)
      set(library cbt_${component})
    endif()
    string(STRIP "-L\${libdir} -l${library} ${PC_LIBS}" PC_LIBS)
  endif()
  configure_file(${CMAKE_CURRENT_LIST_DIR}/cbt.pc.in
                 ${PROJECT_BINARY_DIR}/pkgconfig/cbt-${component}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/pkgconfig/cbt-${component}.pc
          DESTINATION ${cbt_pkgconfig_dir})
endforeach()

# The C interface. Its flags are those that cgo accepts: no linker options.
if(TARGET cbt_c)
  install(TARGETS cbt_c EXPORT cbt-c LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT cbt-c NAMESPACE cbt:: DESTINATION ${cbt_cmake_dir} FILE cbt-c-targets.cmake)
  install(TARGETS cbt_c_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/cbt/c DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cbt
          FILES_MATCHING PATTERN "*.h")
  get_property(cbt_c_private_libs GLOBAL PROPERTY CBT_C_PRIVATE_LIBS)
  foreach(name cbt-c cbt-c-static)
    configure_file(${CMAKE_CURRENT_LIST_DIR}/${name}.pc.in ${PROJECT_BINARY_DIR}/pkgconfig/${name}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/pkgconfig/${name}.pc DESTINATION ${cbt_pkgconfig_dir})
  endforeach()
  include(${CMAKE_CURRENT_LIST_DIR}/CbtBindings.cmake)
endif()

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/cbt DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN c EXCLUDE PATTERN rpc EXCLUDE PATTERN ops EXCLUDE PATTERN grpc EXCLUDE
                             PATTERN kube EXCLUDE PATTERN roaring.h EXCLUDE)
if(CBT_WITH_ROARING)
  install(FILES ${PROJECT_SOURCE_DIR}/include/cbt/bridge/roaring.h
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cbt/bridge)
endif()
if(CBT_WITH_RPC)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/cbt/rpc ${PROJECT_SOURCE_DIR}/include/cbt/ops
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cbt FILES_MATCHING PATTERN "*.h")
endif()
if(CBT_HAS_KUBE)
  set(cbt_kube_leaves_out "")
  if(NOT CBT_WITH_RPC)
    set(cbt_kube_leaves_out PATTERN snapshot_metadata.h EXCLUDE)
  endif()
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/cbt/kube
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cbt FILES_MATCHING PATTERN "*.h" ${cbt_kube_leaves_out})
endif()
if(CBT_WITH_GRPC)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/cbt/grpc
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cbt FILES_MATCHING PATTERN "*.h")
endif()

# Where nbdkit of the same prefix looks for plugins; under another prefix it needs the file's path.
if(CBT_HAS_NBDKIT)
  install(TARGETS cbt_nbdkit_plugin LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/nbdkit/plugins)
endif()

# Laid out as in the source tree, so that links between documents work; tests/lint/links.py checks
# that they lead to nothing else.
file(GLOB cbt_pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/*.md)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${cbt_pages} DESTINATION ${CMAKE_INSTALL_DOCDIR}
        COMPONENT documents)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT documents
        FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.json" PATTERN site EXCLUDE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT documents)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/deploy/kubernetes DESTINATION ${CMAKE_INSTALL_DOCDIR}/deploy
        COMPONENT documents)
install(PROGRAMS ${PROJECT_SOURCE_DIR}/deploy/certificate.sh DESTINATION ${CMAKE_INSTALL_DOCDIR}/deploy
        COMPONENT documents)

# The contracts, for code generation in any language. gRPC's own services come with gRPC.
set(cbt_proto_dir ${CMAKE_INSTALL_DATADIR}/cbt/proto)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/proto/ DESTINATION ${cbt_proto_dir}
        FILES_MATCHING PATTERN "*.proto" PATTERN grpc EXCLUDE)

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/cbtConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/package/cbtConfig.cmake
                              INSTALL_DESTINATION ${cbt_cmake_dir}
                              PATH_VARS cbt_proto_dir
                              NO_SET_AND_CHECK_MACRO)
# Before 1.0 a new minor version may change interfaces.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/cbtConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/cbtConfig.cmake
              ${PROJECT_BINARY_DIR}/package/cbtConfigVersion.cmake
        DESTINATION ${cbt_cmake_dir})
