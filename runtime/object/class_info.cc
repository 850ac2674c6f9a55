#include "runtime/object/class_info.h"

#include <cstdlib>

#include "runtime/object/manager.h"

namespace abacus::runtime {

void ObjectTypes::Insert(std::unique_ptr<ClassInfo> info) {
  // Two classes of one name are a mistake of the program that no run can go well with.
  if (Find(info->name) != nullptr) std::abort();
  // The same for two methods of one id, which is a hash: a call of one would run the other.
  for (size_t i = 0; i < info->methods.size(); ++i) {
    if (info->FindMethod(info->methods[i].id) != &info->methods[i]) std::abort();
  }
  classes_.push_back(std::move(info));
}

const ClassInfo* ObjectTypes::Find(std::string_view name) const {
  for (const auto& info : classes_) {
    if (info->name == name) return info.get();
  }
  return nullptr;
}

std::vector<const ClassInfo*> ObjectTypes::All() const {
  std::vector<const ClassInfo*> all;
  for (const auto& info : classes_) all.push_back(info.get());
  return all;
}

}  // namespace abacus::runtime
