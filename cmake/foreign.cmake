# A toolchain file: this Debian's cross compiler for CBT_FOREIGN_PROCESSOR (aarch64), and libraries from
# CBT_FOREIGN_ROOT, which deploy/image/foreign_root.sh makes.
#
#   cmake --toolchain cmake/foreign.cmake -DCBT_FOREIGN_PROCESSOR=aarch64 -DCBT_FOREIGN_ROOT=FOLDER
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${CBT_FOREIGN_PROCESSOR})
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES CBT_FOREIGN_PROCESSOR CBT_FOREIGN_ROOT)
set(triple ${CBT_FOREIGN_PROCESSOR}-linux-gnu)
set(CMAKE_C_COMPILER ${triple}-gcc)
set(CMAKE_CXX_COMPILER ${triple}-g++)
set(CMAKE_LIBRARY_ARCHITECTURE ${triple})
set(CMAKE_SYSROOT ${CBT_FOREIGN_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# protoc writes the same on every machine.
set(Protobuf_PROTOC_EXECUTABLE /usr/bin/protoc CACHE FILEPATH "")
set(ENV{PKG_CONFIG_LIBDIR} ${CBT_FOREIGN_ROOT}/usr/lib/${triple}/pkgconfig:${CBT_FOREIGN_ROOT}/usr/share/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CBT_FOREIGN_ROOT})
