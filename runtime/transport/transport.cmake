# The data plane: frames from one process of a node to another.
abacus_library(abacus_transport
  SRCS
    transport/connection.cc
    transport/fault_transport.cc
    transport/frame.cc
    transport/hello.cc
    transport/listener.cc
    transport/peer.cc
    transport/rate_limiter.cc
    transport/reader_pool.cc
    transport/socket.cc
    transport/socket_transport.cc
    transport/socket_transport_connections.cc
    transport/waiter.cc
  DEPS abacus_base absl::flat_hash_map absl::status absl::statusor absl::strings absl::time
  PRIVATE_DEPS Boost::headers PkgConfig::isal spdlog::spdlog)

foreach(name frame_test hello_test rate_limiter_test)
  abacus_test(${name} SRCS transport/${name}.cc DEPS abacus_transport)
endforeach()

foreach(name waiter_test socket_transport_test socket_transport_refusal_test fault_transport_test)
  abacus_test(${name} SRCS transport/${name}.cc DEPS abacus_transport LABELS tsan)
endforeach()

abacus_fuzz(abacus_frame_fuzz
  SRCS transport/frame_fuzz.cc
  DEPS abacus_transport
  CORPUS transport/frame_corpus)

abacus_benchmark(abacus_transport_benchmark
  SRCS transport/transport_benchmark.cc testing/bench_report.cc
  DEPS abacus_transport nlohmann_json::nlohmann_json)
