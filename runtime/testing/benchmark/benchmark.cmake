add_subdirectory(testing/benchmark/proto)
abacus_benchmark(abacus_runtime_benchmark
  SRCS testing/bench_report.cc testing/benchmark/bench_charging.cc
       testing/benchmark/bench_grpc.cc testing/benchmark/bench_node.cc
       testing/benchmark/runtime_benchmark.cc object/testing/count_allocations.cc
  DEPS abacus_binding abacus_bpf_monitor abacus_bench_proto nlohmann_json::nlohmann_json)
