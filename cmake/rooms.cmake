# Where nothing is hot, a release is optimised for size, and a build with sanitizers not at all: their checks take the
# optimiser longer than the tests run (fuzzers are there to run often, and stay optimised). What runs long in a test is in
# the rooms, so the assertions around it are barely optimised either.
set(adze_cold_options $<$<CONFIG:Release>:-Os>)
set(adze_test_options $<$<NOT:$<CONFIG:Debug>>:-O1>)
if(ADZE_SANITIZE AND NOT ADZE_FUZZ)
  set(adze_cold_options -O0)
  set(adze_test_options -O0)
endif()

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
    target_compile_options(adze_${target} PRIVATE ${adze_cold_options})
  endif()
  if(ADZE_TESTS AND R_TESTS)
    adze_test(${target}_test SOURCES ${R_TESTS} LIBS adze_${target} ${R_PRIVATE})
  endif()
endfunction()

# adze_test(NAME SOURCES files LIBS libs [LABEL label] [SHARDS n]): a GoogleTest binary known to CTest as one entry, or as n
# that run its tests in turn and can run at the same time.
# Tests find the repository's fixtures through ADZE_TEST_DATA, a compile-time path to tests/data.
# The target `sanitized_tests` builds what `./dev sanitize asan` runs: all but the tests with the label `release`, which
# sanitizers would make minutes of or have nothing to say about.
function(adze_test name)
  if(NOT ADZE_TESTS)
    return()
  endif()
  cmake_parse_arguments(T "" "LABEL;SHARDS" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE ${T_LIBS} GTest::gmock_main)
  target_compile_options(${name} PRIVATE ${adze_test_options})
  target_compile_definitions(${name} PRIVATE ADZE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  if(NOT T_LABEL STREQUAL "release")
    adze_sanitized(${name})
  endif()
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

# adze_sanitized(NAME): makes a test's binary part of the target `sanitized_tests`.
function(adze_sanitized name)
  if(NOT TARGET sanitized_tests)
    add_custom_target(sanitized_tests)
  endif()
  add_dependencies(sanitized_tests ${name})
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
