# GoogleTest from the sources that Debian's libgtest-dev brings along.
if(NOT TARGET gmock_main)
  set(INSTALL_GTEST OFF)
  add_subdirectory(/usr/src/googletest ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
endif()
set(GTest_FOUND TRUE)
