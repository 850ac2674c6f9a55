# Tests of binding/. Paths are from runtime/, whose CMakeLists.txt includes this file.

abacus_test(abacus_binding_tables_test
  SRCS binding/dedup_table_test.cc binding/location_table_test.cc
  DEPS abacus_core)
abacus_test(abacus_messages_test SRCS binding/messages_test.cc DEPS abacus_core)
target_compile_definitions(abacus_messages_test PRIVATE ABACUS_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
abacus_fuzz(abacus_messages_fuzz
  SRCS binding/messages_fuzz.cc DEPS abacus_core CORPUS binding/corpus/messages)
