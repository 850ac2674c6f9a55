# The search as a mobile object. Paths are from apps/, whose CMakeLists.txt includes this file.
abacus_library(abacus_grep_object
  SRCS grep/grep_object.cc
  DEPS abacus_grep abacus_layer abacus_object)
abacus_test(abacus_grep_object_test
  SRCS grep/grep_object_test.cc grep/grep_file_test.cc
  DEPS abacus_fs_testing abacus_grep_object
  LABELS tsan)
