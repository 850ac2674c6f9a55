#include "objfs/atomicity/group_core.h"

#include "objfs/atomicity/group_core_inl.h"

namespace abacus::objfs {

template class GroupCore<FaithfulGroupPolicy>;

}  // namespace abacus::objfs
