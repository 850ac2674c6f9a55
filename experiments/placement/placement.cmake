abacus_program(abacus_placement_experiment
  SRCS placement/placement_main.cc
  DEPS abacus_placement_sim absl::str_format nlohmann_json::nlohmann_json)
abacus_program(abacus_placement_play
  SRCS placement/play_main.cc
  DEPS abacus_placement_sim nlohmann_json::nlohmann_json)

# The small scenarios end to end, and that what is written is what the plots need.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME abacus_placement_experiment_test
  COMMAND Python3::Interpreter -B ${CMAKE_CURRENT_SOURCE_DIR}/placement/placement_test.py
          $<TARGET_FILE:abacus_placement_experiment>)
abacus_set_up_test(abacus_placement_experiment_test
  TIMEOUT 600 TARGETS abacus_placement_experiment)

add_test(NAME abacus_placement_play_test
  COMMAND Python3::Interpreter -B ${CMAKE_CURRENT_SOURCE_DIR}/placement/simulator_test.py
          $<TARGET_FILE:abacus_placement_play>)
abacus_set_up_test(abacus_placement_play_test TARGETS abacus_placement_play)
