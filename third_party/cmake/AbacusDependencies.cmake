# Finds every library the project builds against. Nothing is downloaded: all of it is packaged by
# the distribution (third_party/packages.txt has the package names).
find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED) # a module, not a config package; must precede gRPC
find_package(absl CONFIG REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED) # linked as a target: header-only mode costs 6 s per file
find_package(Boost 1.81 REQUIRED)    # headers only: Asio
find_package(tomlplusplus CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(GTest CONFIG REQUIRED)
find_package(benchmark CONFIG REQUIRED)

find_package(PkgConfig REQUIRED)
pkg_check_modules(isal REQUIRED IMPORTED_TARGET libisal)
pkg_check_modules(bpf REQUIRED IMPORTED_TARGET libbpf>=1.1)
pkg_check_modules(fuse3 REQUIRED IMPORTED_TARGET fuse3>=3.14)
