# Refuses machines on which libcbt would be wrong, before anything is compiled. Uses what project()
# detected about the compiler's target. Tests run it alone (cmake -D... -P).
if(CMAKE_CXX_BYTE_ORDER AND NOT CMAKE_CXX_BYTE_ORDER STREQUAL "LITTLE_ENDIAN")
  message(FATAL_ERROR "libcbt does not support big-endian machines: it reads bitmaps and files as they "
                      "lie in memory, in little-endian order")
endif()
if(CMAKE_SIZEOF_VOID_P AND NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  message(FATAL_ERROR "libcbt does not support machines with addresses of less than 64 bits: maps and "
                      "images of large volumes are counted and mapped as a whole")
endif()
