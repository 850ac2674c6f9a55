#include "runtime/binding/call_core.h"

#include "runtime/binding/call_core_inl.h"

namespace abacus::runtime {

template class CallCore<FaithfulPolicy>;

}  // namespace abacus::runtime
