abacus_program(abacus_link_delay SRCS testbed/link_delay_main.cc)
abacus_program(abacus_link_relay SRCS testbed/link_relay_main.cc)

abacus_library(abacus_process SRCS testbed/process.cc
  DEPS absl::status absl::statusor absl::strings absl::time)
abacus_library(abacus_testbed SRCS testbed/testbed.cc
  DEPS abacus_process PRIVATE_DEPS nlohmann_json::nlohmann_json)
abacus_test(abacus_cpp_testbed_test SRCS testbed/process_test.cc testbed/testbed_test.cc
  DEPS abacus_testbed)
foreach(target abacus_testbed abacus_cpp_testbed_test)
  target_compile_definitions(${target} PRIVATE ABACUS_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endforeach()

find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME abacus_testbed_topology_test
  COMMAND Python3::Interpreter -B ${CMAKE_CURRENT_SOURCE_DIR}/testbed/topology_test.py)
abacus_set_up_test(abacus_testbed_topology_test NOASAN "it runs no program of this build")

add_test(NAME abacus_testbed_test
  COMMAND Python3::Interpreter -B ${CMAKE_CURRENT_SOURCE_DIR}/testbed/testbed_test.py
          $<TARGET_FILE:abacus_link_delay>)
abacus_set_up_test(abacus_testbed_test TARGETS abacus_link_delay)

add_test(NAME abacus_user_space_testbed_test
  COMMAND Python3::Interpreter -B ${CMAKE_CURRENT_SOURCE_DIR}/testbed/user_space_test.py
          $<TARGET_FILE:abacus_link_relay>)
abacus_set_up_test(abacus_user_space_testbed_test TARGETS abacus_link_relay LABELS serial)
