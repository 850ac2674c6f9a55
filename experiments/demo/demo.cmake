abacus_program(abacus_demo
  SRCS demo/demo_main.cc demo/link.cc
  DEPS abacus_base abacus_cli abacus_process absl::str_format CLI11::CLI11
       nlohmann_json::nlohmann_json)
target_compile_definitions(abacus_demo PRIVATE
  ABACUS_SOURCE_DIR="${PROJECT_SOURCE_DIR}" ABACUS_PROGRAM_SUBPATH="apps/abacus")
if(TARGET abacus)
  add_dependencies(abacus_demo abacus)
endif()

find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME abacus_demo_test
  COMMAND Python3::Interpreter -B ${CMAKE_CURRENT_SOURCE_DIR}/demo/demo_test.py
          $<TARGET_FILE:abacus_demo>)
abacus_set_up_test(abacus_demo_test TARGETS abacus_demo LABELS serial)
