// An object that is removed and made again under its identifier, as columns and copies are, with
// the power cut at each call to the disk.

#include <gtest/gtest.h>

#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "objfs/store/local_object_store.h"
#include "objfs/store/model_disk.h"

namespace abacus::objfs {
namespace {

constexpr ObjectId kObject = 7;

struct RemakeCase {
  const char* name;
  uint64_t first_bytes, second_bytes;  // up to 64 blocks are logged, and more in the data file
  bool has_table;                      // the first one
  bool checkpoints;                    // when the second one is there
};

class RemakeCrashTest : public ::testing::TestWithParam<RemakeCase> {
 protected:
  using Store = std::unique_ptr<LocalObjectStore>;

  Store Open() {
    LocalObjectStoreOptions options;
    options.logged_blocks_max = 64;
    auto store = LocalObjectStore::Open(*disk_, options);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  static std::string Contents(char what) {
    return std::string(what == '1' ? GetParam().first_bytes : GetParam().second_bytes, what);
  }
  static absl::Status Write(LocalObjectStore& store, char what, uint64_t version) {
    const std::string bytes = Contents(what);
    if (auto status = store.Write(kObject, 0, bytes, version); !status.ok()) return status;
    return store.Flush(kObject);
  }
  static absl::Status Remake(LocalObjectStore& store) {
    if (auto status = store.Remove(kObject); !status.ok()) return status;
    if (auto status = store.CreateAs(kObject, "second", 10); !status.ok()) return status;
    if (auto status = Write(store, '2', 11); !status.ok()) return status;
    return GetParam().checkpoints ? store.Checkpoint() : absl::OkStatus();
  }
  // nullopt: there is no such object.
  static std::optional<std::string> Read(LocalObjectStore& store, std::string* blob) {
    const auto attributes = store.GetAttributes(kObject);
    if (absl::IsNotFound(attributes.status())) return std::nullopt;
    EXPECT_TRUE(attributes.ok()) << attributes.status();
    if (!attributes.ok()) return std::nullopt;
    *blob = attributes->blob;
    std::string bytes(attributes->size_bytes, '\0');
    const auto read = store.Read(kObject, 0, std::span(bytes.data(), bytes.size()));
    EXPECT_TRUE(read.ok()) << read.status();
    return bytes;
  }

  std::optional<PowerCutDisk> disk_;
};

TEST_P(RemakeCrashTest, IsTheOneOrTheOtherAndWhatWasFlushed) {
  size_t points = 0, firsts = 0, nones = 0, empties = 0, seconds = 0;
  for (bool is_over = false; !is_over; ++points) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      SCOPED_TRACE(absl::StrCat("call ", points, ", seed ", seed));
      disk_.emplace();
      Store store = Open();
      ASSERT_NE(store, nullptr);
      ASSERT_TRUE(store->CreateAs(kObject, "first", 1).ok());
      ASSERT_TRUE(Write(*store, '1', 2).ok());
      if (GetParam().has_table) ASSERT_TRUE(store->Checkpoint().ok());
      disk_->CutPowerAfter(points);
      const absl::Status remade = Remake(*store);
      is_over = remade.ok();
      disk_->CutPower();
      store.reset();
      disk_->PowerOn(seed);
      // Twice: the first opening writes, too.
      for (int life = 0; life < 2; ++life) {
        store = Open();
        ASSERT_NE(store, nullptr);
        std::string blob;
        const std::optional<std::string> found = Read(*store, &blob);
        if (remade.ok()) ASSERT_TRUE(found == Contents('2'));
        if (!found.has_value()) {
          ++nones;
        } else if (blob == "first") {
          ++firsts;
          ASSERT_TRUE(*found == Contents('1'));
        } else {
          ASSERT_EQ(blob, "second");
          ++(found->empty() ? empties : seconds);
          ASSERT_TRUE(found->empty() || *found == Contents('2'));
        }
        store.reset();
      }
      // It can be made anew.
      store = Open();
      ASSERT_NE(store, nullptr);
      if (const absl::Status removed = store->Remove(kObject); !absl::IsNotFound(removed)) {
        ASSERT_TRUE(removed.ok()) << removed;
      }
      ASSERT_TRUE(store->CreateAs(kObject, "third", 20).ok());
      const absl::Status written = Write(*store, '3', 21);
      ASSERT_TRUE(written.ok()) << written;
      store.reset();
      store = Open();
      ASSERT_NE(store, nullptr);
      std::string blob;
      ASSERT_TRUE(Read(*store, &blob) == Contents('3'));
      EXPECT_EQ(blob, "third");
      ASSERT_LT(points, 1000u) << remade;
    }
  }
  std::cout << GetParam().name << ": " << points << " calls; the first one " << firsts
            << " times, none " << nones << ", the second one empty " << empties << " and whole "
            << seconds << "\n";
  EXPECT_GT(points, 4u);
  EXPECT_GT(firsts, 0u);
  EXPECT_GT(seconds, 0u);
}
INSTANTIATE_TEST_SUITE_P(
    Contents, RemakeCrashTest,
    ::testing::Values(RemakeCase{"Logged", 4096, 4096, false, false},
                      RemakeCase{"LoggedWithTable", 4096, 4096, true, false},
                      RemakeCase{"Data", 600'000, 400'000, false, false},
                      RemakeCase{"DataWithTable", 600'000, 400'000, true, true},
                      RemakeCase{"LoggedOverData", 1'200'000, 4096, true, true},
                      RemakeCase{"DataOverLogged", 4096, 400'000, true, false}),
    [](const auto& tried) { return std::string(tried.param.name); });

}  // namespace
}  // namespace abacus::objfs
