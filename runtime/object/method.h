#ifndef ABACUS_RUNTIME_OBJECT_METHOD_H_
#define ABACUS_RUNTIME_OBJECT_METHOD_H_

// What the compiler knows of a method: its parameters and result, checked for what can travel.

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/codec.h"
#include "runtime/object/class_info.h"

namespace abacus::runtime::internal {

template <typename T>
struct ResultTraits {
  static constexpr bool kValid = false;
};
template <>
struct ResultTraits<absl::Status> {
  static constexpr bool kValid = true;
  static constexpr bool kReturnsValue = false;
  using Value = void;
};
template <typename T>
struct ResultTraits<absl::StatusOr<T>> {
  static constexpr bool kValid = true;
  static constexpr bool kReturnsValue = true;
  using Value = T;
};

// Whether a value of type T shows bytes that another holds.
template <typename T>
struct HoldsView : std::false_type {};
template <>
struct HoldsView<std::string_view> : std::true_type {};
template <typename T>
struct HoldsView<std::optional<T>> : HoldsView<T> {};
template <typename T>
struct HoldsView<std::vector<T>> : HoldsView<T> {};
template <typename T, size_t kSize>
struct HoldsView<std::array<T, kSize>> : HoldsView<T> {};
template <typename K, typename V>
struct HoldsView<std::map<K, V>> : std::disjunction<HoldsView<K>, HoldsView<V>> {};
template <typename A, typename B>
struct HoldsView<std::pair<A, B>> : std::disjunction<HoldsView<A>, HoldsView<B>> {};
template <typename... T>
struct HoldsView<std::tuple<T...>> : std::disjunction<HoldsView<std::remove_cvref_t<T>>...> {};
template <HasFields T>
struct HoldsView<T> : HoldsView<decltype(std::declval<T&>().AbacusFields())> {};

template <typename P>
constexpr bool CheckParameter() {
  static_assert(!std::is_pointer_v<std::remove_cvref_t<P>>,
                "abacus: a method's parameter is a pointer, which means nothing on another node. "
                "Pass a value, a Block, or a Ref.");
  static_assert(!std::is_lvalue_reference_v<P> || std::is_const_v<std::remove_reference_t<P>>,
                "abacus: a method's parameter is a reference to be written through, which cannot "
                "reach the caller from another node. Return the value instead.");
  static_assert(!std::is_rvalue_reference_v<P>,
                "abacus: a method's parameter is an rvalue reference. Take it by value.");
  return true;
}

// The payload size of an argument that was given as an A for a parameter of type D.
template <typename D, typename A>
size_t ArgumentBytesOf(const A& argument) {
  if constexpr (std::is_same_v<D, A>) {
    return Codec<D>::Bytes(argument);
  } else if constexpr (std::is_arithmetic_v<D> || std::is_enum_v<D>) {
    return sizeof(D);
  } else if constexpr (std::is_convertible_v<const A&, std::string_view>) {
    return std::string_view(argument).size();
  } else {
    return Codec<D>::Bytes(D(argument));
  }
}

template <typename D, typename A>
void EncodeArgument(Writer& writer, const A& argument) {
  if constexpr (std::is_same_v<D, A>) {
    Codec<D>::Encode(writer, argument);
  } else if constexpr (std::is_same_v<D, std::string> &&
                       std::is_convertible_v<const A&, std::string_view>) {
    writer.PutString(std::string_view(argument));
  } else {
    Codec<D>::Encode(writer, static_cast<D>(argument));
  }
}

template <typename M>
struct MethodTraits {
  static_assert(
      kAlwaysFalse<M>,
      "abacus: ABACUS_OBJECT lists something that is not a plain member function. "
      "Overloaded, static, noexcept-qualified and ref-qualified methods cannot be listed.");
};

template <typename C, typename R, typename... P>
struct MethodTraitsImpl {
  static_assert(ResultTraits<R>::kValid,
                "abacus: a method of a mobile object must return absl::Status or "
                "absl::StatusOr<T>: the node that runs it can fail.");
  static_assert((CheckParameter<P>() && ... && true));

  using Class = C;
  using Result = R;
  using Value = typename ResultTraits<R>::Value;
  static_assert(!HoldsView<Value>::value,
                "abacus: a method returns a view, but the bytes that it shows are gone when the "
                "answer has come from another node. Return a std::string or a Block.");
  using Arguments = std::tuple<std::remove_cvref_t<P>...>;
  static constexpr bool kReturnsValue = ResultTraits<R>::kReturnsValue;

  template <typename... A>
  static Payload EncodeArguments(const A&... arguments) {
    Writer writer;
    (EncodeArgument<std::remove_cvref_t<P>>(writer, arguments), ...);
    return std::move(writer).Finish();
  }
  template <typename... A>
  static size_t ArgumentBytes(const A&... arguments) {
    return (size_t{0} + ... + ArgumentBytesOf<std::remove_cvref_t<P>>(arguments));
  }
  static size_t ResultBytes(const Result& result) {
    if constexpr (kReturnsValue) {
      return result.ok() ? Codec<Value>::Bytes(*result) : 0;
    } else {
      return 0;
    }
  }
  static std::string Signature() {
    std::string signature =
        "(" + (std::string() + ... + Codec<std::remove_cvref_t<P>>::Name()) + ")";
    if constexpr (kReturnsValue) signature += Codec<Value>::Name();
    return signature;
  }
};

template <typename C, typename R, typename... P>
struct MethodTraits<R (C::*)(P...)> : MethodTraitsImpl<C, R, P...> {
  template <typename... A>
  static constexpr bool kTakes = std::is_invocable_v<R (C::*)(P...), C&, A...>;
};
template <typename C, typename R, typename... P>
struct MethodTraits<R (C::*)(P...) const> : MethodTraitsImpl<C, R, P...> {
  template <typename... A>
  static constexpr bool kTakes = std::is_invocable_v<R (C::*)(P...) const, const C&, A...>;
};

// The method's own name, as the compiler prints it: "... = &Counter::Add]".
template <auto kMethod>
std::string MethodName() {
  std::string_view text = __PRETTY_FUNCTION__;
  const auto is_word = [](char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  };
  // gcc goes on with "; std::string = ..." behind the pointer, clang ends with "]".
  const size_t begin = text.find("kMethod = ");
  text = text.substr(begin, text.find(';', begin) - begin);
  size_t end = text.size();
  while (end > 0 && !is_word(text[end - 1])) --end;
  size_t at = end;
  while (at > 0 && is_word(text[at - 1])) --at;
  return std::string(text.substr(at, end - at));
}

MethodId HashMethod(std::string_view name, std::string_view signature);

template <auto kMethod>
MethodId MethodIdOf() {
  static const MethodId id =
      HashMethod(MethodName<kMethod>(), MethodTraits<decltype(kMethod)>::Signature());
  return id;
}

// How an invocation from another node enters the method.
template <auto kMethod>
absl::Status InvokeDecoded(MobileObject& object, Reader& arguments, Writer& result,
                           MethodScope* scope) {
  using Traits = MethodTraits<decltype(kMethod)>;
  auto values = typename Traits::Arguments();
  DecodeParts(arguments, values);
  if (arguments.ok() && !arguments.AtEnd()) arguments.Fail("more arguments came than are taken");
  if (!arguments.ok()) return arguments.status();
  if (scope != nullptr) scope->Begin();
  auto outcome = std::apply(
      [&object](auto&... value) {
        return (static_cast<typename Traits::Class&>(object).*kMethod)(std::move(value)...);
      },
      values);
  if (scope != nullptr) scope->End();
  if constexpr (Traits::kReturnsValue) {
    if (!outcome.ok()) return std::move(outcome).status();
    Encode<typename Traits::Value>(result, *outcome);
    return absl::OkStatus();
  } else {
    return outcome;
  }
}

template <auto kMethod>
MethodInfo MakeMethod() {
  return {MethodIdOf<kMethod>(), MethodName<kMethod>(), &InvokeDecoded<kMethod>};
}

}  // namespace abacus::runtime::internal

#endif  // ABACUS_RUNTIME_OBJECT_METHOD_H_
