#ifndef ABACUS_RUNTIME_BASE_CODEC_H_
#define ABACUS_RUNTIME_BASE_CODEC_H_

// The binary form of arguments, results, messages and checkpoints.
//
// Little-endian, fixed-width numbers; counted strings and sequences. Bulk data travels beside the
// inline bytes: a Block of at least kBlockInlineMax bytes is carried by reference, so encoding it
// copies a pointer and the transport gathers it from where it is.
//
// What can be encoded: bool, integers, enums, floats, std::string, std::string_view, Block,
// absl::Duration and absl::Time, std::optional, std::pair, std::tuple, std::array, std::vector,
// std::map, a struct that lists its fields with ABACUS_FIELDS(...), protobuf messages, and (in
// runtime/object/ref.h) Ref<T>.

#include <array>
#include <bit>
#include <climits>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/base/block.h"
#include "runtime/base/ids.h"

namespace abacus::runtime {

class Invoker;  // runtime/object/invoker.h: how a decoded Ref reaches its object

static_assert(std::endian::native == std::endian::little,
              "the codec copies numbers as they lie in memory");

// Blocks smaller than this are copied into the inline bytes: a gather entry costs more.
inline constexpr size_t kBlockInlineMax = 1024;

// What one message or checkpoint carries.
struct Payload {
  std::string inline_bytes;
  std::vector<Block> blocks;

  size_t bytes() const {
    size_t total = inline_bytes.size();
    for (const Block& block : blocks) total += block.size();
    return total;
  }
};

// Appends values. Thread-compatible.
class Writer {
 public:
  void PutRaw(const void* bytes, size_t size) {
    payload_.inline_bytes.append(static_cast<const char*>(bytes), size);
  }
  template <typename Number>
    requires std::is_arithmetic_v<Number>
  void PutNumber(Number value) { PutRaw(&value, sizeof value); }
  void PutString(std::string_view text) {
    PutNumber(static_cast<uint64_t>(text.size()));
    PutRaw(text.data(), text.size());
  }
  void PutBlock(const Block& block);

  // Puts what another writer has finished: its inline bytes uncounted, so that they must come last.
  void PutTail(const Payload& tail) {
    PutRaw(tail.inline_bytes.data(), tail.inline_bytes.size());
    payload_.blocks.insert(payload_.blocks.end(), tail.blocks.begin(), tail.blocks.end());
  }

  size_t bytes() const { return payload_.bytes(); }
  size_t inline_bytes() const { return payload_.inline_bytes.size(); }
  Payload Finish() && { return std::move(payload_); }

 private:
  Payload payload_;
};

// Takes values in the order in which they were put. The first mistake (too short, a count that
// cannot be, a block that is not there) makes the reader fail: ok() is false from then on, every
// further value is empty, and status() says what was wrong.
// Ownership: views into the payload that the reader hands out live as long as the payload.
// Thread-compatible.
class Reader {
 public:
  explicit Reader(const Payload& payload, Invoker* invoker = nullptr)
      : Reader(payload.inline_bytes, payload.blocks, invoker) {}
  // The same where the inline bytes lie elsewhere than in a Payload.
  Reader(std::string_view inline_bytes, const std::vector<Block>& blocks, Invoker* invoker)
      : inline_(inline_bytes), blocks_(&blocks), invoker_(invoker) {}
  // Goes on behind the first `offset` inline bytes, which somebody else has read.
  Reader(const Payload& payload, Invoker* invoker, size_t offset) : Reader(payload, invoker) {
    position_ = offset;
  }

  bool ok() const { return error_.empty(); }
  absl::Status status() const;
  void Fail(std::string_view what) {
    if (error_.empty()) error_ = what;
  }
  size_t remaining() const { return inline_.size() - position_; }
  size_t position() const { return position_; }
  // True where nothing is left over: a decoder that ends early read something else.
  bool AtEnd() const { return remaining() == 0 && next_block_ == blocks_->size(); }
  Invoker* invoker() const { return invoker_; }

  bool TakeRaw(void* out, size_t size) {
    if (size == 0) return ok();  // `out` may be null then, which memcpy must not be given
    if (!ok() || remaining() < size) {
      Fail("the data ends too early");
      std::memset(out, 0, size);
      return false;
    }
    std::memcpy(out, inline_.data() + position_, size);
    position_ += size;
    return true;
  }
  template <typename Number>
    requires std::is_arithmetic_v<Number> Number TakeNumber() {
      Number value;
      TakeRaw(&value, sizeof value);
      return value;
    }
  std::string_view TakeView();
  Block TakeBlock();
  // The count of a sequence whose elements take at least one byte each.
  size_t TakeCount();

 private:
  std::string_view inline_;
  const std::vector<Block>* blocks_;
  Invoker* invoker_;
  size_t position_ = 0;
  size_t next_block_ = 0;
  std::string error_;
};

namespace internal {
template <typename T>
inline constexpr bool kAlwaysFalse = false;

template <typename T>
concept HasFields = requires(T& t) {
  t.AbacusFields();
};

// Told by shape, so that this header needs no protobuf header.
template <typename T>
concept ProtobufMessage = requires(T& message, const T& constant, std::string* out, const void* in,
                                   int size) {
  { constant.SerializeToString(out) } -> std::same_as<bool>;
  { message.ParseFromArray(in, size) } -> std::same_as<bool>;
  constant.ByteSizeLong();
  { constant.GetTypeName() } -> std::convertible_to<std::string>;
};
}  // namespace internal

// How values of type T are encoded. The general template is what "cannot be sent" means; a type of
// your own is best made sendable with ABACUS_FIELDS.
//   static void Encode(Writer&, const T&);   appends
//   static void Decode(Reader&, T&);         fails the reader on bad input, never throws
//   static size_t Bytes(const T&);           payload size for the accounts, not the exact encoding
//   static std::string Name();               enters the method's signature, told apart on the wire
template <typename T>
struct Codec {
  static_assert(internal::kAlwaysFalse<T>,
                "abacus: this type cannot be sent to another node. Use a value type (numbers, "
                "strings, Block, Ref, vector, optional, map, tuple, protobuf message) or list the "
                "members of your struct with ABACUS_FIELDS(a, b, ...). Pointers, references to be "
                "written through, and handles of this process cannot travel.");
};

template <typename T>
void Encode(Writer& writer, const T& value) {
  Codec<T>::Encode(writer, value);
}
template <typename T>
void Decode(Reader& reader, T& value) {
  Codec<T>::Decode(reader, value);
}
template <typename T>
T Decoded(Reader& reader) {
  T value{};
  Codec<T>::Decode(reader, value);
  return value;
}

template <typename T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
struct Codec<T> {
  static void Encode(Writer& w, T v) {
    if constexpr (std::is_enum_v<T>) {
      w.PutNumber(static_cast<std::underlying_type_t<T>>(v));
    } else {
      w.PutNumber(v);
    }
  }
  static void Decode(Reader& r, T& v) {
    if constexpr (std::is_same_v<T, bool>) {
      v = r.TakeNumber<uint8_t>() != 0;
    } else if constexpr (std::is_enum_v<T>) {
      v = static_cast<T>(r.TakeNumber<std::underlying_type_t<T>>());
    } else {
      v = r.TakeNumber<T>();
    }
  }
  static size_t Bytes(T) { return sizeof(T); }
  static std::string Name() {
    const char kind = std::is_enum_v<T>             ? 'e'
                      : std::is_floating_point_v<T> ? 'f'
                      : std::is_signed_v<T>         ? 'i'
                                                    : 'u';
    return kind + std::to_string(sizeof(T) * 8);
  }
};

template <>
struct Codec<std::string> {
  static void Encode(Writer& w, const std::string& v) { w.PutString(v); }
  static void Decode(Reader& r, std::string& v) { v = r.TakeView(); }
  static size_t Bytes(const std::string& v) { return v.size(); }
  static std::string Name() { return "s"; }
};

// A view is decoded in place: it is valid during the call only. Same form as std::string.
template <>
struct Codec<std::string_view> {
  static void Encode(Writer& w, std::string_view v) { w.PutString(v); }
  static void Decode(Reader& r, std::string_view& v) { v = r.TakeView(); }
  static size_t Bytes(std::string_view v) { return v.size(); }
  static std::string Name() { return "s"; }
};

template <>
struct Codec<Block> {
  static void Encode(Writer& w, const Block& v) { w.PutBlock(v); }
  static void Decode(Reader& r, Block& v) { v = r.TakeBlock(); }
  static size_t Bytes(const Block& v) { return v.size(); }
  static std::string Name() { return "b"; }
};

// Nanoseconds. What is longer than 292 years, either way, arrives as infinite.
template <>
struct Codec<absl::Duration> {
  static void Encode(Writer& w, absl::Duration v) { w.PutNumber(absl::ToInt64Nanoseconds(v)); }
  static void Decode(Reader& r, absl::Duration& v) {
    const auto ns = r.TakeNumber<int64_t>();
    v = ns == INT64_MAX   ? absl::InfiniteDuration()
        : ns == INT64_MIN ? -absl::InfiniteDuration()
                          : absl::Nanoseconds(ns);
  }
  static size_t Bytes(absl::Duration) { return 8; }
  static std::string Name() { return "d"; }
};

template <>
struct Codec<absl::Time> {
  static void Encode(Writer& w, absl::Time v) { runtime::Encode(w, v - absl::UnixEpoch()); }
  static void Decode(Reader& r, absl::Time& v) {
    v = absl::UnixEpoch() + Decoded<absl::Duration>(r);
  }
  static size_t Bytes(absl::Time) { return 8; }
  static std::string Name() { return "t"; }
};

template <>
struct Codec<NodeInstance> {
  static void Encode(Writer& w, const NodeInstance& v) {
    w.PutNumber(v.node);
    w.PutNumber(v.incarnation);
  }
  static void Decode(Reader& r, NodeInstance& v) {
    v.node = r.TakeNumber<uint32_t>();
    v.incarnation = r.TakeNumber<uint32_t>();
  }
  static size_t Bytes(const NodeInstance&) { return 8; }
  static std::string Name() { return "N"; }
};

template <>
struct Codec<CallId> {
  static void Encode(Writer& w, const CallId& v);
  static void Decode(Reader& r, CallId& v);
  static size_t Bytes(const CallId&) { return 28; }
  static std::string Name() { return "C"; }
};

template <>
struct Codec<ForkPoint> {
  static void Encode(Writer& w, const ForkPoint& v);
  static void Decode(Reader& r, ForkPoint& v);
  static size_t Bytes(const ForkPoint&) { return 20; }
  static std::string Name() { return "F"; }
};

template <typename Id>
  requires(std::is_same_v<Id, Rid> || std::is_same_v<Id, ActivityId>)
struct Codec<Id> {
  static constexpr bool kIsRid = std::is_same_v<Id, Rid>;
  static void Encode(Writer& w, const Id& v) {
    if constexpr (kIsRid) {
      Codec<NodeInstance>::Encode(w, v.home);
    } else {
      Codec<NodeInstance>::Encode(w, v.origin);
    }
    w.PutNumber(v.local);
  }
  static void Decode(Reader& r, Id& v) {
    if constexpr (kIsRid) {
      Codec<NodeInstance>::Decode(r, v.home);
    } else {
      Codec<NodeInstance>::Decode(r, v.origin);
    }
    v.local = r.TakeNumber<uint64_t>();
  }
  static size_t Bytes(const Id&) { return 16; }
  static std::string Name() { return kIsRid ? "R" : "A"; }
};

template <typename T>
struct Codec<std::optional<T>> {
  static void Encode(Writer& w, const std::optional<T>& v) {
    w.PutNumber(static_cast<uint8_t>(v.has_value()));
    if (v.has_value()) runtime::Encode(w, *v);
  }
  static void Decode(Reader& r, std::optional<T>& v) {
    v.reset();
    if (r.TakeNumber<uint8_t>() != 0 && r.ok()) runtime::Decode(r, v.emplace());
  }
  static size_t Bytes(const std::optional<T>& v) { return v ? Codec<T>::Bytes(*v) : 0; }
  static std::string Name() { return "o" + Codec<T>::Name(); }
};

template <typename T>
struct Codec<std::vector<T>> {
  static void Encode(Writer& w, const std::vector<T>& v) {
    w.PutNumber(static_cast<uint64_t>(v.size()));
    if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      w.PutRaw(v.data(), v.size() * sizeof(T));
    } else {
      for (const auto& element : v) runtime::Encode<T>(w, element);
    }
  }
  static void Decode(Reader& r, std::vector<T>& v) {
    const size_t count = r.TakeCount();
    v.clear();
    if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      if (count > r.remaining() / sizeof(T)) return r.Fail("a sequence is longer than its data");
      v.resize(count);
      r.TakeRaw(v.data(), count * sizeof(T));
    } else {
      for (size_t i = 0; i < count && r.ok(); ++i) v.push_back(Decoded<T>(r));
    }
  }
  static size_t Bytes(const std::vector<T>& v) {
    if constexpr (std::is_arithmetic_v<T>) return v.size() * sizeof(T);
    size_t total = 0;
    for (const auto& element : v) total += Codec<T>::Bytes(element);
    return total;
  }
  static std::string Name() { return "v" + Codec<T>::Name(); }
};

template <typename T, size_t kSize>
struct Codec<std::array<T, kSize>> {
  static void Encode(Writer& w, const std::array<T, kSize>& v) {
    for (const T& element : v) runtime::Encode(w, element);
  }
  static void Decode(Reader& r, std::array<T, kSize>& v) {
    for (T& element : v) runtime::Decode(r, element);
  }
  static size_t Bytes(const std::array<T, kSize>& v) {
    size_t total = 0;
    for (const T& element : v) total += Codec<T>::Bytes(element);
    return total;
  }
  static std::string Name() { return "a" + std::to_string(kSize) + Codec<T>::Name(); }
};

template <typename K, typename V>
struct Codec<std::map<K, V>> {
  static void Encode(Writer& w, const std::map<K, V>& v) {
    w.PutNumber(static_cast<uint64_t>(v.size()));
    for (const auto& [key, value] : v) {
      runtime::Encode(w, key);
      runtime::Encode(w, value);
    }
  }
  static void Decode(Reader& r, std::map<K, V>& v) {
    v.clear();
    const size_t count = r.TakeCount();
    for (size_t i = 0; i < count && r.ok(); ++i) {
      K key = Decoded<K>(r);
      v[std::move(key)] = Decoded<V>(r);
    }
  }
  static size_t Bytes(const std::map<K, V>& v) {
    size_t total = 0;
    for (const auto& [key, value] : v) total += Codec<K>::Bytes(key) + Codec<V>::Bytes(value);
    return total;
  }
  static std::string Name() { return "m" + Codec<K>::Name() + Codec<V>::Name(); }
};

namespace internal {
// One codec for everything that is a fixed list of parts.
template <typename Tuple>
void EncodeParts(Writer& w, const Tuple& parts) {
  std::apply([&w](const auto&... part) { (runtime::Encode(w, part), ...); }, parts);
}
template <typename Tuple>
void DecodeParts(Reader& r, Tuple&& parts) {
  std::apply([&r](auto&... part) { (runtime::Decode(r, part), ...); }, parts);
}
template <typename Tuple>
size_t BytesOfParts(const Tuple& parts) {
  return std::apply(
      [](const auto&... part) {
        return (size_t{0} + ... + Codec<std::remove_cvref_t<decltype(part)>>::Bytes(part));
      },
      parts);
}
template <typename... T>
std::string NameOfParts(std::type_identity<std::tuple<T...>>) {
  return "(" + (std::string() + ... + Codec<std::remove_cvref_t<T>>::Name()) + ")";
}
}  // namespace internal

template <typename A, typename B>
struct Codec<std::pair<A, B>> {
  static void Encode(Writer& w, const std::pair<A, B>& v) {
    internal::EncodeParts(w, std::tie(v.first, v.second));
  }
  static void Decode(Reader& r, std::pair<A, B>& v) {
    internal::DecodeParts(r, std::tie(v.first, v.second));
  }
  static size_t Bytes(const std::pair<A, B>& v) {
    return internal::BytesOfParts(std::tie(v.first, v.second));
  }
  static std::string Name() {
    return internal::NameOfParts(std::type_identity<std::tuple<A, B>>());
  }
};

template <typename... T>
struct Codec<std::tuple<T...>> {
  static void Encode(Writer& w, const std::tuple<T...>& v) { internal::EncodeParts(w, v); }
  static void Decode(Reader& r, std::tuple<T...>& v) { internal::DecodeParts(r, v); }
  static size_t Bytes(const std::tuple<T...>& v) { return internal::BytesOfParts(v); }
  static std::string Name() {
    return internal::NameOfParts(std::type_identity<std::tuple<T...>>());
  }
};

template <internal::HasFields T>
struct Codec<T> {
  static void Encode(Writer& w, const T& v) { internal::EncodeParts(w, v.AbacusFields()); }
  static void Decode(Reader& r, T& v) { internal::DecodeParts(r, v.AbacusFields()); }
  static size_t Bytes(const T& v) { return internal::BytesOfParts(v.AbacusFields()); }
  static std::string Name() {
    return internal::NameOfParts(std::type_identity<decltype(std::declval<T&>().AbacusFields())>());
  }
};

template <internal::ProtobufMessage T>
struct Codec<T> {
  static void Encode(Writer& w, const T& v) {
    std::string bytes;
    v.SerializeToString(&bytes);
    w.PutString(bytes);
  }
  static void Decode(Reader& r, T& v) {
    const std::string_view bytes = r.TakeView();
    if (!r.ok()) return;
    if (bytes.size() > INT_MAX || !v.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      r.Fail("a protobuf message does not parse");
    }
  }
  static size_t Bytes(const T& v) { return v.ByteSizeLong(); }
  static std::string Name() { return "p<" + T().GetTypeName() + ">"; }
};

// Put into a struct, behind its members: makes it sendable. Members are encoded in this order.
#define ABACUS_FIELDS(...)                              \
  auto AbacusFields() { return std::tie(__VA_ARGS__); } \
  auto AbacusFields() const { return std::tie(__VA_ARGS__); }

}  // namespace abacus::runtime

#endif  // ABACUS_RUNTIME_BASE_CODEC_H_
