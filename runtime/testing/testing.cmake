# What the runtime's tests between nodes are made of, and those tests. Paths are from runtime/, whose
# CMakeLists.txt includes this file.

abacus_library(abacus_testing
  SRCS testing/cluster.cc testing/test_objects.cc
  DEPS abacus_binding)

abacus_test(abacus_binding_manager_test
  SRCS binding/binding_manager_test.cc binding/call_observer_test.cc
  DEPS abacus_testing protobuf::libprotobuf
  LABELS tsan TIMEOUT 180)
abacus_test(abacus_timed_branch_test
  SRCS binding/timed_branch_test.cc
  DEPS abacus_testing
  LABELS tsan)
abacus_test(abacus_end_objects_test
  SRCS binding/end_objects_test.cc
  DEPS abacus_testing
  LABELS tsan)
abacus_test(abacus_migrator_test
  SRCS migration/before_move_test.cc migration/migrator_test.cc
  DEPS abacus_testing
  LABELS tsan TIMEOUT 180)
abacus_test(abacus_forced_moves_test
  SRCS migration/forced_moves_test.cc
  DEPS abacus_testing
  LABELS tsan TIMEOUT 180)
abacus_test(abacus_gate_test
  SRCS migration/gate_test.cc
  DEPS abacus_testing
  LABELS tsan)
abacus_program(abacus_test_node SRCS testing/test_node.cc DEPS abacus_testing)
abacus_test(abacus_crash_test
  SRCS migration/crash_test.cc
  DEPS abacus_testing
  LABELS tsan serial TIMEOUT 240)
add_dependencies(abacus_crash_test abacus_test_node) # which it starts
abacus_test(abacus_memory_move_test
  SRCS migration/memory_move_test.cc
  DEPS abacus_testing abacus_memory)
