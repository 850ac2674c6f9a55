# The search as a mobile object. Paths are from apps/, whose CMakeLists.txt includes this file.
abacus_library(abacus_grep_object
  SRCS grep/grep_object.cc
  DEPS abacus_grep abacus_layer abacus_object)
abacus_test(abacus_grep_object_test
  SRCS grep/grep_object_test.cc grep/grep_file_test.cc
  DEPS abacus_cache abacus_file_system abacus_grep_object abacus_mirror_layer abacus_raid5_layer abacus_testing
  LABELS tsan)
