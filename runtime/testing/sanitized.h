#ifndef ABACUS_RUNTIME_TESTING_SANITIZED_H_
#define ABACUS_RUNTIME_TESTING_SANITIZED_H_

namespace abacus::runtime::testing {

// Built with a sanitizer: counts are smaller.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace abacus::runtime::testing

#endif  // ABACUS_RUNTIME_TESTING_SANITIZED_H_
