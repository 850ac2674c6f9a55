# The applications of the paper's experiments. Paths are from apps/, whose CMakeLists.txt includes
# this file.
abacus_library(abacus_filter
  SRCS filter/filter.cc
  DEPS abacus_layer abacus_object)
abacus_library(abacus_word_count SRCS word_count/word_count.cc DEPS abacus_layer abacus_object)
abacus_library(abacus_column_aggregate
  SRCS column_aggregate/column_aggregate.cc
  DEPS abacus_layer abacus_object)
abacus_test(abacus_readers_test
  SRCS column_aggregate/column_aggregate_test.cc word_count/word_count_test.cc
  DEPS abacus_column_aggregate abacus_testing abacus_word_count)
abacus_library(abacus_workloads
  SRCS directory_insert/directory_insert.cc multiphase/multiphase.cc table/record_table.cc
  DEPS abacus_file_system)
abacus_test(abacus_workloads_test
  SRCS directory_insert/directory_insert_test.cc filter/filter_test.cc
       multiphase/multiphase_test.cc
  DEPS abacus_filter abacus_fs_testing abacus_workloads)

find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME abacus_workloads_source_test
  COMMAND Python3::Interpreter -B ${CMAKE_CURRENT_SOURCE_DIR}/testing/workloads_source_test.py)
abacus_set_up_test(abacus_workloads_source_test NOASAN "it runs no program of this build")
