# The protocol core under simulated faults. Paths are from runtime/, whose CMakeLists.txt includes
# this file.
abacus_library(abacus_simulator
  SRCS testing/sim_node.cc testing/sim_oracle.cc testing/sim_world.cc testing/simulator.cc
  DEPS abacus_core absl::any_invocable absl::function_ref)

abacus_test(abacus_migration_core_test
  SRCS migration/migration_core_test.cc migration/migration_core_calls_test.cc
  DEPS abacus_simulator)
abacus_test(abacus_core_simulation_test
  SRCS migration/core_simulation_test.cc
  DEPS abacus_simulator
  TIMEOUT 180)
abacus_test(abacus_core_mutation_test
  SRCS migration/core_mutation_test.cc
  DEPS abacus_simulator
  NOASAN "the core runs in abacus_core_simulation_test, and what is broken here is broken on purpose"
  TIMEOUT 180)
