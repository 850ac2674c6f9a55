# Tests of base/ and object/. Paths are from runtime/, whose CMakeLists.txt includes this file.

abacus_test(abacus_base_test
  SRCS base/byte_size_test.cc base/codec_test.cc base/ids_test.cc base/log_limit_test.cc
       base/nearest_test.cc
       base/status_test.cc
  DEPS abacus_base protobuf::libprotobuf)
abacus_test(abacus_base_threads_test
  SRCS base/block_test.cc base/large_memory_test.cc base/mutex_test.cc
  DEPS abacus_base
  LABELS tsan)

abacus_test(abacus_checkpoint_test SRCS object/checkpoint_test.cc DEPS abacus_object)
target_compile_definitions(abacus_checkpoint_test PRIVATE ABACUS_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
abacus_fuzz(abacus_checkpoint_fuzz
  SRCS object/checkpoint_fuzz.cc DEPS abacus_object CORPUS object/corpus/checkpoint)

find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME abacus_compile_errors_test
  COMMAND Python3::Interpreter -B ${CMAKE_CURRENT_SOURCE_DIR}/object/compile_errors_test.py
    ${CMAKE_CXX_COMPILER} -std=c++20 -I${PROJECT_SOURCE_DIR})
abacus_set_up_test(abacus_compile_errors_test
  TIMEOUT 300 NOASAN "it runs the compiler and no program of this build")

abacus_test(abacus_class_info_test
  SRCS object/class_info_test.cc DEPS abacus_object protobuf::libprotobuf)
abacus_test(abacus_object_threads_test
  SRCS object/accounts_test.cc object/entry_test.cc object/thread_context_test.cc
  DEPS abacus_object
  LABELS tsan)
abacus_test(abacus_ref_test
  SRCS object/ref_test.cc object/testing/count_allocations.cc
  DEPS abacus_object
  LABELS tsan)
