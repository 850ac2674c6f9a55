abacus_library(abacus_config
  SRCS ${CMAKE_CURRENT_LIST_DIR}/config.cc ${CMAKE_CURRENT_LIST_DIR}/config_rows.cc ${CMAKE_CURRENT_LIST_DIR}/config_schema.cc
  DEPS abacus_base absl::span
  PRIVATE_DEPS tomlplusplus::tomlplusplus)
abacus_test(abacus_config_test SRCS ${CMAKE_CURRENT_LIST_DIR}/config_test.cc DEPS abacus_config)
