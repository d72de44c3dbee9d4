# Cross build for AArch64 with Debian's cross compiler; tests run under qemu-user. Only rooms whose libraries are headers
# are built (ADZE_ROOMS), so that no package of the other architecture is needed: cmake/cross/ finds those headers.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -cpu max -L /usr/aarch64-linux-gnu)
set(ADZE_ROOMS base tensor format ops backend cache sample)
list(PREPEND CMAKE_MODULE_PATH ${CMAKE_CURRENT_LIST_DIR}/cross)

# The system's include folder cannot be searched by a cross compiler: it holds the other libc. A folder of links can.
set(ADZE_CROSS_INCLUDE ${CMAKE_BINARY_DIR}/cross-include)
file(MAKE_DIRECTORY ${ADZE_CROSS_INCLUDE})
foreach(header fmt tl nlohmann xxhash.h xxh3.h)
  if(EXISTS /usr/include/${header})
    file(CREATE_LINK /usr/include/${header} ${ADZE_CROSS_INCLUDE}/${header} SYMBOLIC)
  endif()
endforeach()
include_directories(SYSTEM ${ADZE_CROSS_INCLUDE})
set(XXHASH_INCLUDE_DIR ${ADZE_CROSS_INCLUDE} CACHE PATH "")
