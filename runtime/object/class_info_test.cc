#include "runtime/object/class_info.h"

#include <google/protobuf/wrappers.pb.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/status.h"
#include "runtime/object/manager.h"
#include "runtime/object/mobile_object.h"

namespace abacus::runtime {

// Named from outside of any anonymous namespace, as most classes are.
class Shelf : public MobileObject {
 public:
  absl::Status Init(const std::string& label, uint32_t places) {
    label_ = label;
    places_ = places;
    return places == 0 ? absl::InvalidArgumentError("no places") : absl::OkStatus();
  }
  absl::StatusOr<uint32_t> Put(std::string_view what, Block bytes) {
    if (places_ == 0) return absl::ResourceExhaustedError("full");
    --places_;
    content_.emplace_back(what);
    return static_cast<uint32_t>(bytes.size());
  }
  absl::StatusOr<std::string> Label() const { return label_; }
  absl::Status Clear() {
    content_.clear();
    return absl::OkStatus();
  }

  void Checkpoint(CheckpointWriter& w) const override {
    w.Write(label_);
    w.Write(places_);
    w.Write(content_);
  }
  absl::Status Restore(CheckpointReader& r) override {
    r.Read(label_);
    r.Read(places_);
    // Version 1 had no content.
    if (r.version() >= 2) r.Read(content_);
    return r.status();
  }
  const std::vector<std::string>& content() const { return content_; }

  ABACUS_OBJECT(Shelf, "test.Shelf", 2, Put, Label, Clear)

 private:
  std::string label_;
  uint32_t places_ = 0;
  std::vector<std::string> content_;
};

namespace {

class Stateless : public MobileObject {
 public:
  void Checkpoint(CheckpointWriter&) const override {}
  absl::Status Restore(CheckpointReader&) override { return absl::OkStatus(); }
};

// The same method name with other types, and the same types under another name.
class Add64 : public Stateless {
 public:
  absl::StatusOr<int64_t> Add(int64_t n) { return n; }
  absl::StatusOr<int64_t> Sub(int64_t n) { return n; }
  ABACUS_OBJECT(Add64, "test.Add64", 1, Add, Sub)
};
class AddMore : public Stateless {
 public:
  absl::StatusOr<int64_t> Add(int64_t n, int64_t) { return n; }
  ABACUS_OBJECT(AddMore, "test.AddMore", 1, Add)
};
class Add32 : public Stateless {
 public:
  absl::StatusOr<int64_t> Add(int32_t n) { return n; }
  ABACUS_OBJECT(Add32, "test.Add32", 1, Add)
};
class AddTo32 : public Stateless {
 public:
  absl::StatusOr<int32_t> Add(int64_t) { return 0; }
  ABACUS_OBJECT(AddTo32, "test.AddTo32", 1, Add)
};
class AddNoResult : public Stateless {
 public:
  absl::Status Add(int64_t) { return absl::OkStatus(); }
  ABACUS_OBJECT(AddNoResult, "test.AddNoResult", 1, Add)
};
class AddMessage : public Stateless {
 public:
  absl::StatusOr<int64_t> Add(const google::protobuf::Int64Value&) { return 0; }
  ABACUS_OBJECT(AddMessage, "test.AddMessage", 1, Add)
};
class AddOtherMessage : public Stateless {
 public:
  absl::StatusOr<int64_t> Add(const google::protobuf::Int32Value&) { return 0; }
  ABACUS_OBJECT(AddOtherMessage, "test.AddOtherMessage", 1, Add)
};
// The same as Add64 on the wire: const, by reference, and where it stands do not matter.
struct Outer {
  class Inner : public Stateless {
   public:
    absl::StatusOr<int64_t> Add(const int64_t& n) const { return n; }
    ABACUS_OBJECT(Inner, "test.Inner", 1, Add)
  };
};

template <typename T>
class Holder : public Stateless {
 public:
  absl::StatusOr<int64_t> Add(int64_t n) { return n; }
  ABACUS_OBJECT(Holder, "test.Holder", 1, Add)
};

class Inherits : public Add64 {
 public:
  absl::Status Own() { return absl::OkStatus(); }
  ABACUS_OBJECT(Inherits, "test.Inherits", 1, Add, Own)
};

class NoMethods : public Stateless {
 public:
  ABACUS_OBJECT(NoMethods, "test.NoMethods", 1)
};

class Store : public AnchoredObject {
 public:
  explicit Store(int disk) : disk_(disk) {}
  absl::StatusOr<int> Disk() const { return disk_; }
  ABACUS_OBJECT(Store, "test.Store", 1, Disk)

 private:
  int disk_;
};

class Careful : public Stateless {
 public:
  static constexpr bool kOneAtATime = true;
  ABACUS_OBJECT(Careful, "test.Careful", 1)
};

template <typename T>
MethodInfo OnlyMethod() {
  return T::AbacusMethods().at(0);
}

template <typename... T>
Payload Encoded(const T&... values) {
  Writer writer;
  (Encode(writer, values), ...);
  return std::move(writer).Finish();
}

class InvokeTest : public ::testing::Test {
 protected:
  InvokeTest() {
    types_.Add<Shelf>();
    info_ = types_.Find("test.Shelf");
    object_ = info_->construct();
  }

  absl::Status Init(const Payload& arguments) {
    Reader reader(arguments);
    return info_->init(*object_, reader);
  }
  absl::StatusOr<Payload> Invoke(const std::string& name, const Payload& arguments) {
    for (const MethodInfo& method : info_->methods) {
      if (method.name != name) continue;
      Reader reader(arguments);
      Writer result;
      absl::Status status = method.invoke(*object_, reader, result, nullptr);
      const Payload payload = std::move(result).Finish();
      if (status.ok()) return payload;
      EXPECT_EQ(payload.bytes(), 0u) << "something was written beside the error";
      return status;
    }
    return absl::NotFoundError(name);
  }
  Shelf& shelf() { return static_cast<Shelf&>(*object_); }

  ObjectTypes types_;
  const ClassInfo* info_ = nullptr;
  std::unique_ptr<MobileObject> object_;
};

TEST_F(InvokeTest, ArgumentsReachTheMethodAndTheResultComesBack) {
  ASSERT_TRUE(Init(Encoded(std::string("top"), uint32_t{1})).ok());
  const Block bytes = Block::FromString(std::string(5000, 'x'));
  const absl::StatusOr<Payload> put = Invoke("Put", Encoded(std::string("book"), bytes));
  ASSERT_TRUE(put.ok()) << put.status();
  Reader reader(*put);
  EXPECT_EQ(reader.TakeNumber<uint32_t>(), 5000u);
  EXPECT_TRUE(reader.AtEnd());
  EXPECT_EQ(shelf().content(), std::vector<std::string>{"book"});
  const absl::StatusOr<Payload> cleared = Invoke("Clear", Encoded());
  ASSERT_TRUE(cleared.ok());
  EXPECT_EQ(cleared->bytes(), 0u);
  EXPECT_TRUE(shelf().content().empty());
}

TEST_F(InvokeTest, ErrorOfTheMethodComesBackAsItIs) {
  const absl::StatusOr<Payload> put = Invoke("Put", Encoded(std::string("book"), Block()));
  EXPECT_EQ(put.status(), absl::ResourceExhaustedError("full"));
}

TEST_F(InvokeTest, ArgumentsThatDoNotDecodeAreBadArgumentsAndTheMethodDoesNotRun) {
  ASSERT_TRUE(Init(Encoded(std::string("top"), uint32_t{9})).ok());
  const Payload whole = Encoded(std::string("book"), Block::FromString(std::string(2000, 'x')));
  for (size_t size = 0; size < whole.inline_bytes.size(); ++size) {
    const Payload cut{whole.inline_bytes.substr(0, size), whole.blocks};
    ASSERT_EQ(KindOf(Invoke("Put", cut).status()), ErrorKind::kBadArguments) << size;
  }
  const Payload without_block{whole.inline_bytes, {}};
  EXPECT_EQ(KindOf(Invoke("Put", without_block).status()), ErrorKind::kBadArguments);
  EXPECT_TRUE(shelf().content().empty());
}

TEST_F(InvokeTest, MoreArgumentsThanAreTakenAreBadArguments) {
  ASSERT_TRUE(Init(Encoded(std::string("top"), uint32_t{9})).ok());
  EXPECT_EQ(KindOf(Invoke("Put", Encoded(std::string("a"), Block(), uint8_t{0})).status()),
            ErrorKind::kBadArguments);
  EXPECT_EQ(KindOf(Invoke("Clear", Encoded(uint8_t{0})).status()), ErrorKind::kBadArguments);
  Payload extra_block = Encoded();
  extra_block.blocks.push_back(Block::CopyOf("x"));
  EXPECT_EQ(KindOf(Invoke("Clear", extra_block).status()), ErrorKind::kBadArguments);
  EXPECT_TRUE(shelf().content().empty());
}

TEST_F(InvokeTest, InitChecksItsArgumentsAsMethodsDo) {
  EXPECT_EQ(KindOf(Init(Encoded(std::string("top")))), ErrorKind::kBadArguments);
  EXPECT_EQ(KindOf(Init(Encoded(std::string("top"), uint32_t{1}, uint8_t{0}))),
            ErrorKind::kBadArguments);
  EXPECT_EQ(Init(Encoded(std::string("top"), uint32_t{0})),
            absl::InvalidArgumentError("no places"));
  EXPECT_TRUE(Init(internal::EncodeInit<Shelf>("top", 2u)).ok());
}

TEST_F(InvokeTest, ClassWithoutInitTakesNoArguments) {
  types_.Add<Add64>();
  const ClassInfo* info = types_.Find("test.Add64");
  const auto object = info->construct();
  const Payload none;
  Reader reader(none);
  EXPECT_TRUE(info->init(*object, reader).ok());
  const Payload one = Encoded(1);
  Reader too_much(one);
  EXPECT_EQ(KindOf(info->init(*object, too_much)), ErrorKind::kBadArguments);
}

TEST_F(InvokeTest, StateTravelsThroughACheckpoint) {
  ASSERT_TRUE(Init(Encoded(std::string("top"), uint32_t{3})).ok());
  ASSERT_TRUE(shelf().Put("book", Block()).ok());
  CheckpointWriter writer({});
  object_->Checkpoint(writer);
  const absl::StatusOr<Payload> saved = std::move(writer).Finish(info_->name, info_->state_version);
  ASSERT_TRUE(saved.ok());

  absl::StatusOr<CheckpointReader> reader =
      CheckpointReader::Open(*saved, info_->name, info_->state_version, nullptr);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto copy = info_->construct();
  ASSERT_TRUE(copy->Restore(*reader).ok());
  EXPECT_TRUE(reader->AtEnd());
  EXPECT_EQ(*static_cast<Shelf&>(*copy).Label(), "top");
  EXPECT_EQ(static_cast<Shelf&>(*copy).content(), std::vector<std::string>{"book"});
}

TEST_F(InvokeTest, StateOfAnOlderBuildIsRestored) {
  CheckpointWriter writer({});
  writer.Write(std::string("old"));
  writer.Write(uint32_t{5});
  const absl::StatusOr<Payload> saved = std::move(writer).Finish(info_->name, 1);
  absl::StatusOr<CheckpointReader> reader =
      CheckpointReader::Open(*saved, info_->name, info_->state_version, nullptr);
  ASSERT_TRUE(reader.ok()) << reader.status();
  ASSERT_TRUE(object_->Restore(*reader).ok());
  EXPECT_EQ(*shelf().Label(), "old");
}

TEST(ClassInfoTest, TellsWhatTheClassDeclares) {
  ObjectTypes types;
  types.Add<Shelf>().Add<Store>().Add<Careful>().Add<NoMethods>();
  const ClassInfo* shelf = types.Find("test.Shelf");
  ASSERT_NE(shelf, nullptr);
  EXPECT_EQ(shelf->name, "test.Shelf");
  EXPECT_EQ(shelf->state_version, 2u);
  EXPECT_FALSE(shelf->anchored);
  EXPECT_FALSE(shelf->one_at_a_time);
  EXPECT_FALSE(shelf->make_manager);
  ASSERT_EQ(shelf->methods.size(), 3u);
  EXPECT_EQ(shelf->methods[0].name, "Put");
  EXPECT_EQ(shelf->methods[1].name, "Label");
  EXPECT_EQ(shelf->methods[2].name, "Clear");
  EXPECT_TRUE(types.Find("test.Store")->anchored);
  EXPECT_TRUE(types.Find("test.Careful")->one_at_a_time);
  EXPECT_TRUE(types.Find("test.NoMethods")->methods.empty());
}

TEST(ClassInfoTest, ObjectOfAClassWithoutDefaultConstructorIsAnError) {
  ObjectTypes types;
  types.Add<Store>();
  ObjectManager manager;
  const auto object = manager.CreateObj(*types.Find("test.Store"), 0);
  EXPECT_EQ(object.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ClassInfoTest, ManagerOfItsOwnIsMadeByItsFunction) {
  class Refusing : public ObjectManager {
    absl::StatusOr<std::unique_ptr<MobileObject>> CreateObj(const ClassInfo&, size_t) override {
      return absl::ResourceExhaustedError("no room");
    }
  };
  ObjectTypes types;
  types.Add<Shelf>([] { return std::make_unique<Refusing>(); });
  const ClassInfo* info = types.Find("test.Shelf");
  ASSERT_TRUE(info->make_manager);
  EXPECT_EQ(info->make_manager()->CreateObj(*info, 0).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(ObjectManager().CreateObj(*info, 0).ok());
}

TEST(ClassInfoTest, UnknownNamesAndMethodsAreNotFound) {
  ObjectTypes types;
  EXPECT_EQ(types.Find("test.Shelf"), nullptr);
  types.Add<Shelf>();
  EXPECT_EQ(types.Find("test.Shel"), nullptr);
  EXPECT_EQ(types.Find(""), nullptr);
  const ClassInfo* info = types.Find("test.Shelf");
  for (const MethodInfo& method : info->methods) {
    EXPECT_EQ(info->FindMethod(method.id), &method);
  }
  EXPECT_EQ(info->FindMethod(OnlyMethod<Add64>().id), nullptr);
  EXPECT_EQ(info->FindMethod(0), nullptr);
}

TEST(ClassInfoTest, AllGivesTheClassesInTheOrderOfAdding) {
  ObjectTypes types;
  types.Add<Shelf>().Add<Add64>();
  const std::vector<const ClassInfo*> all = types.All();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0], types.Find("test.Shelf"));
  EXPECT_EQ(all[1], types.Find("test.Add64"));
}

TEST(ClassInfoDeathTest, TwoClassesOfOneNameEndTheProgram) {
  ObjectTypes types;
  types.Add<Shelf>();
  EXPECT_DEATH(types.Add<Shelf>(), "");
}

TEST(MethodTest, NameIsTheMethodsOwnWhereverItsClassStands) {
  EXPECT_EQ(OnlyMethod<Shelf>().name, "Put");
  EXPECT_EQ(OnlyMethod<Add64>().name, "Add");
  EXPECT_EQ(OnlyMethod<Outer::Inner>().name, "Add");
  EXPECT_EQ(OnlyMethod<Holder<int>>().name, "Add");
  EXPECT_EQ(OnlyMethod<Holder<std::vector<int[3]>>>().name, "Add");
  EXPECT_EQ(Inherits::AbacusMethods().at(0).name, "Add");
  EXPECT_EQ(Inherits::AbacusMethods().at(1).name, "Own");
}

TEST(MethodTest, IdIsThatOfNameAndTypesAlone) {
  // Fixed for ever: another build must come to the same. FNV-1a of "Add(i64)i64".
  EXPECT_EQ(OnlyMethod<Add64>().id, internal::HashMethod("Add", "(i64)i64"));
  EXPECT_EQ(internal::HashMethod("Add", "(i64)i64"), 0x5a300015u);
  EXPECT_EQ(internal::HashMethod("", ""), 0x811c9dc5u);
  EXPECT_EQ(OnlyMethod<Add64>().id, OnlyMethod<Add64>().id);
  EXPECT_EQ(OnlyMethod<Add64>().id, OnlyMethod<Outer::Inner>().id);
  EXPECT_EQ(OnlyMethod<Add64>().id, OnlyMethod<Holder<int>>().id);
  EXPECT_EQ(OnlyMethod<Add64>().id, Inherits::AbacusMethods().at(0).id);
}

TEST(MethodTest, IdDiffersWithNameParametersAndResult) {
  const std::set<MethodId> ids = {
      OnlyMethod<Add64>().id,      Add64::AbacusMethods().at(1).id,  OnlyMethod<AddMore>().id,
      OnlyMethod<Add32>().id,      OnlyMethod<AddTo32>().id,         OnlyMethod<AddNoResult>().id,
      OnlyMethod<AddMessage>().id, OnlyMethod<AddOtherMessage>().id,
  };
  EXPECT_EQ(ids.size(), 8u);
}

}  // namespace
}  // namespace abacus::runtime
