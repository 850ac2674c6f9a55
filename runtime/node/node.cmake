# The node: membership, the control plane, and what ties the runtime together.
add_subdirectory(${CMAKE_CURRENT_LIST_DIR}/proto)

abacus_library(abacus_node
  SRCS
    node/addresses.cc
    node/membership_agent.cc
    node/console.cc
    node/front_end_console.cc
    node/control_client.cc
    node/control_service.cc
    node/digest_loop.cc
    node/digest_sender.cc
    node/engine_config.cc
    node/incarnation.cc
    node/membership.cc
    node/move_desk.cc
    node/node_impl.cc
    node/peer_links.cc
    node/proto_convert.cc
    node/serial_queue.cc
    node/status_report.cc
  DEPS abacus_resource abacus_config
  PRIVATE_DEPS abacus_control_proto abacus_flags gRPC::grpc++ spdlog::spdlog)

# Seen by their clock alone.
abacus_test(abacus_membership_test
  SRCS node/membership_test.cc node/membership_simulation_test.cc DEPS abacus_node)
abacus_test(abacus_control_test
  SRCS node/addresses_test.cc node/control_client_test.cc node/digest_sender_test.cc
       node/engine_config_test.cc
       node/incarnation_test.cc node/proto_convert_test.cc
  DEPS abacus_node abacus_control_proto abacus_testing)
abacus_test(abacus_peer_links_test
  SRCS node/peer_links_test.cc
  DEPS abacus_node abacus_monitor abacus_testing)
abacus_test(abacus_node_test
  SRCS node/engine_test.cc node/node_test.cc node/node_life_test.cc
  DEPS abacus_node abacus_monitor abacus_testing LABELS serial)
abacus_test(abacus_full_server_test
  SRCS node/full_server_test.cc
  DEPS abacus_node abacus_monitor abacus_memory abacus_testing LABELS serial
  NOASAN "sanitizers bring a malloc of their own, and memory is not counted")
abacus_benchmark(abacus_engine_benchmark
  SRCS node/engine_benchmark.cc testing/bench_report.cc testing/cpu_cgroup.cc
  DEPS abacus_node abacus_bpf_monitor nlohmann_json::nlohmann_json)
