# The command. Paths are from apps/, whose CMakeLists.txt includes this file.
# Not in abacus/: that is the program's name where it is built.
add_subdirectory(${CMAKE_CURRENT_LIST_DIR}/proto etcd_proto)
abacus_library(abacus_command
  SRCS abacus/client_node.cc abacus/config_command.cc abacus/control.cc abacus/doctor.cc
       abacus/doctor_checks.cc abacus/drain_command.cc abacus/etcd_map.cc abacus/figures.cc abacus/files.cc abacus/fsck_command.cc
       abacus/fsck_online.cc abacus/fsck_report.cc abacus/local_store.cc
       abacus/interrupt.cc abacus/log_setup.cc abacus/map_health.cc abacus/mount_command.cc
       abacus/output.cc
       abacus/monitor_of.cc abacus/open_map.cc abacus/repair_command.cc abacus/run_aggregate.cc
       abacus/run_console.cc abacus/run_grep.cc abacus/run_word_count.cc abacus/scrub.cc
       abacus/serve.cc abacus/status.cc
       abacus/top.cc abacus/top_view.cc abacus/volume_command.cc abacus/volume_files.cc
       abacus/volumes.cc
  DEPS abacus_cli abacus_column_aggregate abacus_config abacus_grep_object abacus_bpf_monitor abacus_cache
    abacus_check abacus_file_system abacus_fuse abacus_node abacus_mirror_layer abacus_raid5_layer
    abacus_word_count absl::cleanup
  PRIVATE_DEPS abacus_etcd_proto gRPC::grpc++ nlohmann_json::nlohmann_json spdlog::spdlog)
abacus_program(abacus SRCS abacus/main.cc DEPS abacus_command abacus_memory CLI11::CLI11)
target_compile_definitions(abacus PRIVATE ABACUS_VERSION="${PROJECT_VERSION}")

abacus_library(abacus_command_testing
  SRCS abacus/testing/command.cc abacus/testing/etcd.cc abacus/testing/long_link.cc
  DEPS abacus_testing)
target_compile_definitions(abacus_command_testing PRIVATE ABACUS_PROGRAM="$<TARGET_FILE:abacus>")
add_dependencies(abacus_command_testing abacus)

abacus_test(abacus_command_test
  SRCS abacus/command_test.cc abacus/map_health_test.cc abacus/scrub_test.cc
       abacus/top_view_test.cc
  DEPS abacus_command abacus_command_testing nlohmann_json::nlohmann_json)
abacus_test(abacus_volumes_test
  SRCS abacus/volumes_test.cc
  DEPS abacus_command abacus_monitor abacus_testing
  LABELS serial)
# These run the program: in sanitizer builds, the instrumented one.
abacus_test(abacus_command_line_test
  SRCS abacus/command_line_test.cc
  DEPS abacus_command_testing)
abacus_test(abacus_end_to_end_test
  SRCS abacus/end_to_end_test.cc abacus/run_end_to_end_test.cc
  DEPS abacus_command_testing nlohmann_json::nlohmann_json
  LABELS serial TIMEOUT 300)
abacus_test(abacus_fsck_end_to_end_test
  SRCS abacus/fsck_end_to_end_test.cc
  DEPS abacus_check abacus_command_testing abacus_object_store nlohmann_json::nlohmann_json
  LABELS serial TIMEOUT 300)
abacus_test(abacus_mount_end_to_end_test
  SRCS abacus/mount_crash_test.cc abacus/mount_end_to_end_test.cc
  DEPS abacus_command_testing abacus_testing nlohmann_json::nlohmann_json
  NOASAN "not yet run whole with the address sanitizer since the mount keeps its open handles"
  LABELS serial TIMEOUT 300 SHARDS 2)
abacus_test(abacus_contention_test
  SRCS abacus/contention_test.cc
  DEPS abacus_command abacus_command_testing abacus_testing
  LABELS serial TIMEOUT 300)
abacus_test(abacus_raid_end_to_end_test
  SRCS abacus/raid_end_to_end_test.cc
  DEPS abacus_command_testing abacus_testing nlohmann_json::nlohmann_json
  NOASAN "not yet run whole with the address sanitizer since the mount keeps its open handles"
  LABELS serial TIMEOUT 300 SHARDS 2)
abacus_test(abacus_server_change_end_to_end_test
  SRCS abacus/server_change_end_to_end_test.cc
  DEPS abacus_command_testing abacus_testing nlohmann_json::nlohmann_json
  NOASAN "not yet run whole with the address sanitizer since the mount keeps its open handles"
  LABELS serial TIMEOUT 300 SHARDS 2)
abacus_test(abacus_map_end_to_end_test
  SRCS abacus/etcd_map_test.cc abacus/map_end_to_end_test.cc
  DEPS abacus_command abacus_command_testing abacus_testing nlohmann_json::nlohmann_json
  NOASAN "not yet run whole with the address sanitizer since the mount keeps its open handles"
  LABELS serial TIMEOUT 600 SHARDS 2)
abacus_test(abacus_server_map_end_to_end_test
  SRCS abacus/server_map_end_to_end_test.cc
  DEPS abacus_command_testing abacus_testing nlohmann_json::nlohmann_json
  NOASAN "not yet run whole with the address sanitizer since the mount keeps its open handles"
  LABELS serial TIMEOUT 300 SHARDS 3)
abacus_test(abacus_failover_end_to_end_test
  SRCS abacus/failover_end_to_end_test.cc
  DEPS abacus_command_testing abacus_testing nlohmann_json::nlohmann_json
  NOASAN "not yet run whole with the address sanitizer since the mount keeps its open handles"
  LABELS serial TIMEOUT 600 SHARDS 4)
abacus_test(abacus_shards_end_to_end_test
  SRCS abacus/shards_end_to_end_test.cc
  DEPS abacus_command_testing abacus_testing nlohmann_json::nlohmann_json
  NOASAN "not yet run whole with the address sanitizer since the mount keeps its open handles"
  LABELS serial TIMEOUT 300 SHARDS 3)
