// The main() of every fuzz target's plain build (abacus_fuzz's NAME_corpus test): each input of the
// corpus, then seeded mutations of them, through LLVMFuzzerTestOneInput. libFuzzer explores by
// coverage but needs clang; this runs with every compiler, sanitizer and CI, and so keeps what
// exploring once found.
//
//   NAME_corpus [FILE|DIRECTORY]...
//   ABACUS_SEED=N       another seed; the same seed gives the same inputs on every machine
//   ABACUS_LONG=1       50 times the inputs and the time
//
// The input that is being run stands in the file NAME_corpus.crash-input in the working directory,
// where it outlives any way to die: a signal, a sanitizer's exit, the kill at ctest's time limit.
// To replay it, name that file as the argument.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Input = std::vector<uint8_t>;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kMutations = 20'000;
constexpr int64_t kMutationTime_s = 20;
constexpr uint64_t kLongFactor = 50;
constexpr size_t kMutationsPerInputMax = 4;
constexpr size_t kInputBytesMax = size_t{1} << 20;

Input ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  return Input(std::istreambuf_iterator<char>(in), {});
}

// Sorted, so that a seed means the same inputs wherever the corpus is read.
std::vector<Input> ReadCorpus(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::filesystem::path> files;
  for (const auto& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<Input> corpus;
  for (const auto& file : files) corpus.push_back(ReadFile(file));
  return corpus;
}

// Keeps the input that is being run on disk until the process ends well. One pwrite() and one
// ftruncate() an input is some microseconds, and unlike a signal handler it misses no way to die.
class CrashInput {
 public:
  explicit CrashInput(std::string path) : path_(std::move(path)) {
    fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd_ < 0) throw std::runtime_error("cannot create " + path_ + ": " + strerror(errno));
  }
  ~CrashInput() {
    close(fd_);
    unlink(path_.c_str());
  }
  CrashInput(const CrashInput&) = delete;
  CrashInput& operator=(const CrashInput&) = delete;

  void Run(const Input& input) {
    if (ftruncate(fd_, static_cast<off_t>(input.size())) != 0 ||
        pwrite(fd_, input.data(), input.size(), 0) != static_cast<ssize_t>(input.size())) {
      throw std::runtime_error("cannot write " + path_ + ": " + strerror(errno));
    }
    // A copy of its exact size on the heap: AddressSanitizer sees a read one byte past the end.
    const Input exact(input);
    // An exception that escapes from the code under test is a crash like any other.
    [&exact]() noexcept { LLVMFuzzerTestOneInput(exact.data(), exact.size()); }();
  }

 private:
  std::string path_;
  int fd_;
};

// Makes the `index`-th input of a seed; depends on nothing else, so each can be made again alone.
class Mutator {
 public:
  Mutator(uint64_t seed, const std::vector<Input>& corpus) : seed_(seed), corpus_(corpus) {}

  Input Make(uint64_t index) {
    random_.seed(seed_ * 0x9e3779b97f4a7c15u + index);
    Input input = corpus_[Below(corpus_.size())];
    for (size_t left = 1 + Below(kMutationsPerInputMax); left > 0; --left) Mutate(input);
    if (input.size() > kInputBytesMax) input.resize(kInputBytesMax);
    return input;
  }

 private:
  // Not std::uniform_int_distribution: its results differ between standard libraries. The bias of
  // the remainder does not matter here.
  size_t Below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }

  void Mutate(Input& input) {
    const size_t at = Below(input.size());
    switch (Below(7)) {
      case 0:
        if (!input.empty()) input[at] ^= static_cast<uint8_t>(1u << Below(8));
        return;
      case 1:
        if (!input.empty()) input[at] = static_cast<uint8_t>(random_());
        return;
      case 2:
        input.resize(at);
        return;
      case 3:
        return Erase(input, at);
      case 4:
        return InsertBytes(input, at);
      case 5:
        return Splice(input);
      default:
        return WriteEdge(input);
    }
  }

  void Erase(Input& input, size_t at) {
    const size_t bytes = std::min(input.size() - at, 1 + Below(16));
    input.erase(input.begin() + static_cast<ptrdiff_t>(at),
                input.begin() + static_cast<ptrdiff_t>(at + bytes));
  }

  void InsertBytes(Input& input, size_t at) {
    Input bytes(1 + Below(16));
    const bool random = Below(2) == 0;
    for (uint8_t& byte : bytes) byte = random ? static_cast<uint8_t>(random_()) : 0;
    input.insert(input.begin() + static_cast<ptrdiff_t>(at), bytes.begin(), bytes.end());
  }

  // The head of this input and the tail of another.
  void Splice(Input& input) {
    const Input& other = corpus_[Below(corpus_.size())];
    input.resize(Below(input.size() + 1));
    const size_t from = Below(other.size() + 1);
    input.insert(input.end(), other.begin() + static_cast<ptrdiff_t>(from), other.end());
  }

  // Puts a value at which arithmetic on lengths and counts goes wrong over 1, 2, 4 or 8 bytes,
  // either end first.
  void WriteEdge(Input& input) {
    const size_t width = size_t{1} << Below(4);
    if (input.size() < width) input.resize(width);
    const uint64_t max = width == 8 ? UINT64_MAX : (uint64_t{1} << (8 * width)) - 1;
    const uint64_t size = input.size();
    const std::array<uint64_t, 12> edges = {0,       1,    max / 2,  max / 2 + 1, max - 1, max,
                                            max - 7, size, size + 1, size - 1,    0x7fff,  0x10000};
    const uint64_t value = edges[Below(edges.size())];
    const size_t at = Below(input.size() - width + 1);
    const bool little_endian = Below(2) == 0;
    for (size_t i = 0; i < width; ++i) {
      const size_t byte = little_endian ? i : width - 1 - i;
      input[at + byte] = static_cast<uint8_t>(value >> (8 * i));
    }
  }

  uint64_t seed_;
  const std::vector<Input>& corpus_;
  std::mt19937_64 random_;
};

uint64_t SeedFromEnvironment() {
  const char* text = std::getenv("ABACUS_SEED");
  if (text == nullptr) return 1;
  char* end = nullptr;
  errno = 0;
  const uint64_t seed = std::strtoull(text, &end, 0);
  if (errno != 0 || end == text || *end != '\0') {
    throw std::runtime_error("ABACUS_SEED must be a number of 64 bits, not '" + std::string(text) +
                             "'");
  }
  return seed;
}

bool LongFromEnvironment() {
  const char* text = std::getenv("ABACUS_LONG");
  return text != nullptr && *text != '\0' && std::string_view(text) != "0";
}

void RunAll(const std::string& program, const std::vector<std::filesystem::path>& paths) {
  const uint64_t seed = SeedFromEnvironment();
  const uint64_t factor = LongFromEnvironment() ? kLongFactor : 1;
  const uint64_t mutations = kMutations * factor;
  std::vector<Input> corpus = ReadCorpus(paths);
  const size_t corpus_files = corpus.size();
  if (corpus.empty()) corpus.emplace_back();

  const std::string crash_file = program + ".crash-input";
  std::printf("%s: %zu corpus files, up to %llu mutations, ABACUS_SEED=%llu\n", program.c_str(),
              corpus_files, static_cast<unsigned long long>(mutations),
              static_cast<unsigned long long>(seed));
  std::printf("should this process die, its input is in %s\n",
              std::filesystem::absolute(crash_file).c_str());
  std::fflush(stdout);

  CrashInput current(crash_file);  // After ReadCorpus: this very file may be what is replayed.
  for (const Input& input : corpus) current.Run(input);

  Mutator mutator(seed, corpus);
  const auto start = Clock::now();
  const auto deadline = start + std::chrono::seconds(kMutationTime_s) * factor;
  uint64_t done = 0;
  for (; done < mutations && Clock::now() < deadline; ++done) current.Run(mutator.Make(done));
  const std::chrono::duration<double> elapsed = Clock::now() - start;
  std::printf("%zu corpus files and %llu mutations in %.1f s: no crash%s\n", corpus_files,
              static_cast<unsigned long long>(done), elapsed.count(),
              done < mutations ? " (the rest left out: time limit)" : "");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string program = std::filesystem::path(argv[0]).filename();
    const std::vector<std::filesystem::path> paths(argv + 1, argv + argc);
    RunAll(program, paths);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 2;
  }
  return 0;
}
