#include "runtime/migration/migration_core.h"

#include "runtime/migration/migration_core_inl.h"

namespace abacus::runtime {

template class MigrationCore<FaithfulPolicy>;

}  // namespace abacus::runtime
