# harness.cmake has found the interpreter: one with PIL, where that is installed.
add_test(NAME abacus_real_programs_test
  COMMAND ${harness_python} -B ${CMAKE_CURRENT_SOURCE_DIR}/real_programs/real_programs_test.py
          $<TARGET_FILE:abacus_lab> $<TARGET_FILE:abacus>)
abacus_set_up_test(abacus_real_programs_test TARGETS abacus_lab abacus LABELS serial
  NOASAN "the lab's and the mount's own tests run these programs under it")
