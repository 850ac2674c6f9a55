# The few functions that every room's CMakeLists.txt is written with, so that flags, sanitizers and
# test registration are decided in one place.
#
#   abacus_library(NAME SRCS a.cc ... [DEPS target ...] [PRIVATE_DEPS target ...])
#   abacus_program(NAME SRCS a.cc ... [DEPS target ...])
#   abacus_test(NAME SRCS a_test.cc ... [DEPS target ...] [LABELS tsan|serial|...] [TIMEOUT seconds]
#               [NOASAN "why it cannot run under AddressSanitizer"])
#   abacus_benchmark(NAME SRCS a_benchmark.cc ... [DEPS target ...])
#   abacus_fuzz(NAME SRCS a_fuzz.cc ... [DEPS target ...] [CORPUS dir])
#
# Labels: `tsan` also runs the test under ThreadSanitizer, `serial` never runs it beside another.
# Includes are written from the project's root: #include "runtime/base/ids.h".

option(ABACUS_LONG "Give tests the time that their larger counts take (./dev test --long)" OFF)
option(ABACUS_FUZZ "Build the fuzz targets that explore; needs clang (./dev fuzz)" OFF)

find_program(ABACUS_CCACHE ccache)
if(ABACUS_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${ABACUS_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ABACUS_CCACHE})
endif()

add_library(abacus_flags INTERFACE)
target_include_directories(abacus_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(abacus_flags INTERFACE -Wall -Wextra -Wno-missing-field-initializers
  # With -O3 gcc 12 takes the assignment of a literal to a std::string for an overlap (PR 105651).
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-Wno-restrict>)
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # It takes the sources of a unity build for headers.
  target_compile_options(abacus_flags INTERFACE -Wno-subobject-linkage)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(abacus_flags INTERFACE -Wthread-safety -Werror=thread-safety)
endif()
target_link_libraries(abacus_flags INTERFACE Threads::Threads)

if(ABACUS_SANITIZE)
  target_compile_options(abacus_flags INTERFACE
    -fsanitize=${ABACUS_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(abacus_flags INTERFACE -fsanitize=${ABACUS_SANITIZE})
endif()
if(ABACUS_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # As gcc tells of it, and clang does since its version 20.
  if(ABACUS_SANITIZE MATCHES "thread")
    target_compile_definitions(abacus_flags INTERFACE __SANITIZE_THREAD__)
  else()
    target_compile_definitions(abacus_flags INTERFACE __SANITIZE_ADDRESS__)
  endif()
endif()
if(ABACUS_SANITIZE MATCHES "undefined")
  # A quarter of the time to compile goes to these. A null pointer that is used dies under
  # AddressSanitizer as well, and it finds most of what is not the object that its type says.
  target_compile_options(abacus_flags INTERFACE -fno-sanitize=null,alignment,vptr,object-size)
endif()
if(ABACUS_FUZZ)
  # Libraries too: libFuzzer steers by the edges that an input reaches in the code under test.
  target_compile_options(abacus_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# It links a test in 0.1 s, a third of what the system's linker takes. Not mold: that of Debian 12
# (1.10) lays out about one program of a hundred so that the loader refuses it, "cannot apply
# additional memory protection after relocation" (its issue 1151), and where it is told to lay out no
# GNU_RELRO, it links some programs without end.
find_program(ABACUS_LLD ld.lld)
if(ABACUS_LLD)
  target_link_options(abacus_flags INTERFACE -fuse-ld=lld)
endif()

# What `./dev sanitize asan` and `./dev sanitize tsan` build: only the tests that they run.
add_custom_target(asan_tests)
add_custom_target(tsan_tests)

function(abacus_library name)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  if(arg_SRCS)
    add_library(${name} STATIC ${arg_SRCS})
    target_link_libraries(${name} PUBLIC abacus_flags ${arg_DEPS} PRIVATE ${arg_PRIVATE_DEPS})
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE abacus_flags ${arg_DEPS})
  endif()
endfunction()

function(abacus_program name)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${arg_SRCS})
  target_link_libraries(${name} PRIVATE abacus_flags ${arg_DEPS})
endfunction()

# Gives the ctest test NAME its time limit, labels and sanitizer options. TARGETS are what it runs.
# Rooms call it themselves only for a test that is not one GoogleTest program (add_test it first).
function(abacus_set_up_test name)
  cmake_parse_arguments(arg "" "TIMEOUT;NOASAN" "TARGETS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(ABACUS_LONG)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 60")
  endif()
  if(ABACUS_SANITIZE)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 4")
  endif()

  if("noasan" IN_LIST arg_LABELS)
    message(FATAL_ERROR "${name}: write NOASAN \"<the reason>\" instead of the label noasan")
  elseif(arg_TARGETS AND NOT arg_NOASAN)
    add_dependencies(asan_tests ${arg_TARGETS})
  elseif(arg_NOASAN)
    list(APPEND arg_LABELS noasan)
    if(ABACUS_SANITIZE MATCHES "address")
      message(STATUS "Left out under AddressSanitizer: ${name}: ${arg_NOASAN}")
    endif()
  endif()
  if(arg_TARGETS AND "tsan" IN_LIST arg_LABELS)
    add_dependencies(tsan_tests ${arg_TARGETS})
  endif()
  if("serial" IN_LIST arg_LABELS)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()

  set(options "ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1"
    "UBSAN_OPTIONS=print_stacktrace=1"
    "TSAN_OPTIONS=halt_on_error=1 second_deadlock_stack=1 ignore_noninstrumented_modules=1 suppressions=${PROJECT_SOURCE_DIR}/third_party/tsan.supp")
  set_tests_properties(${name} PROPERTIES
    TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}" ENVIRONMENT "${options}")
endfunction()

# SHARDS: as so many processes at once (in_shards.sh).
function(abacus_test name)
  cmake_parse_arguments(arg "" "TIMEOUT;NOASAN;SHARDS" "SRCS;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${arg_SRCS})
  if(ABACUS_SANITIZE)
    # Half the time to compile; what takes a test's time is in the libraries.
    target_compile_options(${name} PRIVATE -O0)
  endif()
  target_link_libraries(${name} PRIVATE abacus_flags ${arg_DEPS} GTest::gmock GTest::gtest_main)
  if(arg_SHARDS)
    add_test(NAME ${name}
      COMMAND ${PROJECT_SOURCE_DIR}/third_party/in_shards.sh ${arg_SHARDS} $<TARGET_FILE:${name}>)
  else()
    add_test(NAME ${name} COMMAND ${name})
  endif()
  abacus_set_up_test(${name} TARGETS ${name}
    TIMEOUT ${arg_TIMEOUT} NOASAN ${arg_NOASAN} LABELS ${arg_LABELS})
endfunction()

function(abacus_benchmark name)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${arg_SRCS})
  target_link_libraries(${name} PRIVATE abacus_flags ${arg_DEPS} benchmark::benchmark)
endfunction()

# A fuzz target defines LLVMFuzzerTestOneInput. Every build also makes a test of it, NAME_corpus,
# that replays the committed corpus (CORPUS, from the room's folder) and a bounded number of seeded
# mutations of it with a plain driver; built with clang and libFuzzer it explores (./dev fuzz NAME).
function(abacus_fuzz name)
  cmake_parse_arguments(arg "" "CORPUS" "SRCS;DEPS" ${ARGN})
  if(arg_CORPUS)
    cmake_path(ABSOLUTE_PATH arg_CORPUS)
  endif()
  add_executable(${name}_corpus ${arg_SRCS} ${PROJECT_SOURCE_DIR}/runtime/testing/fuzz_driver.cc)
  target_link_libraries(${name}_corpus PRIVATE abacus_flags ${arg_DEPS})
  add_test(NAME ${name}_corpus COMMAND ${name}_corpus ${arg_CORPUS})
  abacus_set_up_test(${name}_corpus TARGETS ${name}_corpus)
  if(ABACUS_FUZZ)
    file(WRITE ${CMAKE_BINARY_DIR}/${name}.corpus "${arg_CORPUS}") # for ./dev fuzz
    add_executable(${name} ${arg_SRCS})
    target_link_libraries(${name} PRIVATE abacus_flags ${arg_DEPS})
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  endif()
endfunction()
