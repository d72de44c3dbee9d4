# adze_room(NAME [SMALL] SOURCES... [PUBLIC libs] [PRIVATE libs] [TESTS test sources])
# One room of the house: a static library `adze_NAME` that sees exactly what it links, and `NAME_test` from
# the unit tests that stand beside its sources. SMALL: nothing in it is hot, so it is optimised for size: pages of code
# that are not there cost neither start-up time nor memory. `tests/tidy` checks the #include lines against the same table.
function(adze_room name)
  cmake_parse_arguments(R "SMALL" "" "SOURCES;PUBLIC;PRIVATE;TESTS" ${ARGN})
  string(REPLACE "/" "_" target ${name})
  add_library(adze_${target} STATIC ${R_SOURCES})
  target_include_directories(adze_${target} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(adze_${target} PUBLIC ${R_PUBLIC} PRIVATE ${R_PRIVATE})
  if(R_SMALL)
    target_compile_options(adze_${target} PRIVATE $<$<CONFIG:Release>:-Os>)
  endif()
  if(ADZE_TESTS AND R_TESTS)
    adze_test(${target}_test SOURCES ${R_TESTS} LIBS adze_${target} ${R_PRIVATE})
  endif()
endfunction()

# adze_test(NAME SOURCES files LIBS libs [LABEL label] [SHARDS n]): a GoogleTest binary known to CTest as one entry, or as n
# that run its tests in turn and can run at the same time.
# Tests find the repository's fixtures through ADZE_TEST_DATA, a compile-time path to tests/data.
function(adze_test name)
  if(NOT ADZE_TESTS)
    return()
  endif()
  cmake_parse_arguments(T "" "LABEL;SHARDS" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE ${T_LIBS} GTest::gmock_main)
  # What runs long is in the rooms; optimising the assertions around it costs a third of a test's compile time.
  target_compile_options(${name} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O1>)
  target_compile_definitions(${name} PRIVATE ADZE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  if(NOT T_SHARDS)
    set(T_SHARDS 1)
  endif()
  foreach(shard RANGE 1 ${T_SHARDS})
    set(entry ${name})
    if(shard GREATER 1)
      set(entry ${name}_${shard})
    endif()
    math(EXPR index "${shard} - 1")
    add_test(NAME ${entry} COMMAND ${name})
    set_tests_properties(${entry} PROPERTIES
      LABELS "${T_LABEL}" ENVIRONMENT "GTEST_TOTAL_SHARDS=${T_SHARDS};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()

# adze_fuzz(NAME SOURCES files LIBS libs): a libFuzzer binary when ADZE_FUZZ is on; the target `fuzzers` builds them all.
function(adze_fuzz name)
  cmake_parse_arguments(F "" "" "SOURCES;LIBS" ${ARGN})
  if(ADZE_FUZZ)
    add_executable(${name} ${F_SOURCES})
    target_link_libraries(${name} PRIVATE ${F_LIBS})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    if(NOT TARGET fuzzers)
      add_custom_target(fuzzers)
    endif()
    add_dependencies(fuzzers ${name})
  endif()
endfunction()
