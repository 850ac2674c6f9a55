abacus_test(abacus_link_estimator_test
  SRCS resource/activity_meter_test.cc resource/call_spans_test.cc resource/contention_test.cc resource/decision_log_test.cc resource/decision_memory_test.cc resource/digest_window_test.cc resource/link_book_test.cc resource/link_estimator_test.cc resource/moments_test.cc
  DEPS abacus_resource)
abacus_test(abacus_cluster_view_test
  SRCS resource/cluster_view_test.cc
  DEPS abacus_resource)
abacus_test(abacus_placement_loop_test
  SRCS resource/placement_loop_test.cc resource/snapshot_json_test.cc
  DEPS abacus_resource)
abacus_test(abacus_resource_manager_test
  SRCS resource/resource_manager_test.cc
  DEPS abacus_resource
  LABELS tsan)
abacus_test(abacus_charging_test
  SRCS resource/charging_test.cc
  DEPS abacus_resource abacus_bpf_monitor abacus_testing
  LABELS serial)
abacus_benchmark(abacus_resource_benchmark
  SRCS resource/placement_loop_benchmark.cc testing/bench_report.cc
  DEPS abacus_resource abacus_placement_testing nlohmann_json::nlohmann_json)
