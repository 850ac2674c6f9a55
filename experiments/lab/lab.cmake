abacus_library(abacus_paper_node
  SRCS lab/cached_disk.cc lab/paper_transport.cc lab/processor.cc lab/relayed_transport.cc
  DEPS abacus_object_store abacus_transport)
abacus_library(abacus_lab_node
  SRCS lab/client.cc lab/disks.cc lab/job.cc lab/lab_node.cc lab/recorder.cc lab/server.cc
  DEPS abacus_column_aggregate abacus_command abacus_filter abacus_grep_object abacus_paper_node
       abacus_word_count abacus_workloads
  PRIVATE_DEPS nlohmann_json::nlohmann_json)
abacus_program(abacus_lab SRCS lab/lab_main.cc DEPS abacus_lab_node abacus_memory CLI11::CLI11)
abacus_test(abacus_lab_test
  SRCS lab/cached_disk_test.cc lab/job_test.cc lab/paper_transport_test.cc lab/relayed_transport_test.cc
  DEPS abacus_lab_node abacus_transport)

add_test(NAME abacus_lab_end_to_end_test
  COMMAND Python3::Interpreter -B ${CMAKE_CURRENT_SOURCE_DIR}/lab/lab_test.py
          $<TARGET_FILE:abacus_lab>)
abacus_set_up_test(abacus_lab_end_to_end_test TARGETS abacus_lab LABELS serial)

add_test(NAME abacus_user_space_lab_test
  COMMAND Python3::Interpreter -B ${CMAKE_CURRENT_SOURCE_DIR}/lab/user_space_lab_test.py
          $<TARGET_FILE:abacus_lab> $<TARGET_FILE:abacus_link_relay>)
abacus_set_up_test(abacus_user_space_lab_test TARGETS abacus_lab abacus_link_relay LABELS serial
  NOASAN "the lab's own tests run its program under it, and times are not those of a sanitizer")
