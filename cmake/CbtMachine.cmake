# Machines that libcbt can't be right on are refused before anything is compiled. Reads what project()
# found out about the compiler's target; also runs by itself (cmake -D... -P), which the tests do.
if(CMAKE_CXX_BYTE_ORDER AND NOT CMAKE_CXX_BYTE_ORDER STREQUAL "LITTLE_ENDIAN")
  message(FATAL_ERROR "libcbt does not support big-endian machines: it reads bitmaps and files as they "
                      "lie in memory, in little-endian order")
endif()
if(CMAKE_SIZEOF_VOID_P AND NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  message(FATAL_ERROR "libcbt does not support machines with addresses of less than 64 bits: maps and "
                      "images of large volumes are counted and mapped as a whole")
endif()
