#include "objfs/map/lease_core.h"

#include "objfs/map/lease_core_inl.h"

namespace abacus::objfs {

template class BasicLeaseCore<FaithfulLeasePolicy>;

}  // namespace abacus::objfs
