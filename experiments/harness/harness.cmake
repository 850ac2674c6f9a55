# The harness has no program of its own; its tests run the paper's experiments on a testbed that is
# made up. Debian's own interpreter has matplotlib; another one may come first in PATH.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
if(EXISTS /usr/bin/python3)
  set(harness_python /usr/bin/python3)
else()
  set(harness_python ${Python3_EXECUTABLE})
endif()

foreach(part summary manifest definition claims runner without_root report table drivers)
  add_test(NAME abacus_experiments_${part}_test
    COMMAND ${harness_python} -B ${CMAKE_CURRENT_SOURCE_DIR}/harness/${part}_test.py)
  abacus_set_up_test(abacus_experiments_${part}_test NOASAN "it runs no program of this build")
endforeach()
