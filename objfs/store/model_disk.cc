#include "objfs/store/model_disk.h"

#include "absl/time/clock.h"

namespace abacus::objfs {

using runtime::MutexLock;

class ModelFile : public DiskFile {
 public:
  ModelFile(std::shared_ptr<ModelDisk::Device> device, std::shared_ptr<DiskFile> below,
            std::string path)
      : device_(std::move(device)), below_(std::move(below)), path_(std::move(path)) {}

  absl::StatusOr<uint64_t> Read(uint64_t offset, std::span<char> bytes) override {
    if (auto status = device_->Fault("read", path_); !status.ok()) return status;
    device_->Transfer(below_.get(), offset, bytes.size());
    return below_->Read(offset, bytes);
  }
  absl::Status Write(uint64_t offset, std::string_view bytes) override {
    if (auto status = device_->Fault("write", path_); !status.ok()) return status;
    device_->Transfer(below_.get(), offset, bytes.size());
    return below_->Write(offset, bytes);
  }
  absl::Status Truncate(uint64_t bytes) override {
    const absl::Status fault = device_->Fault("truncate", path_);
    return fault.ok() ? below_->Truncate(bytes) : fault;
  }
  absl::Status Punch(uint64_t offset, uint64_t bytes) override {
    const absl::Status fault = device_->Fault("punch", path_);
    return fault.ok() ? below_->Punch(offset, bytes) : fault;
  }
  absl::Status Allocate(uint64_t offset, uint64_t bytes) override {
    return below_->Allocate(offset, bytes);
  }
  absl::StatusOr<uint64_t> Size() override { return below_->Size(); }
  absl::StatusOr<uint64_t> NextData(uint64_t offset) override { return below_->NextData(offset); }
  absl::Status Sync() override {
    if (auto status = device_->Fault("sync", path_); !status.ok()) return status;
    device_->Flush();
    return below_->Sync();
  }

 private:
  const std::shared_ptr<ModelDisk::Device> device_;
  const std::shared_ptr<DiskFile> below_;
  const std::string path_;
};

absl::Duration ModelDisk::TimeOf(const DiskModel& model, uint64_t bytes, bool seeks) {
  absl::Duration time = seeks ? model.seek : absl::ZeroDuration();
  if (model.bytes_per_second > 0) {
    time += absl::Seconds(static_cast<double>(bytes) / model.bytes_per_second);
  }
  return time;
}

absl::Status ModelDisk::Device::Fault(std::string_view call, const std::string& path) const {
  return model_.fault ? model_.fault(call, path) : absl::OkStatus();
}

void ModelDisk::Device::Transfer(const void* file, uint64_t offset, uint64_t bytes) {
  MutexLock lock(mutex_);
  const bool seeks = file != last_file_ || offset != last_end_;
  last_file_ = file;
  last_end_ = offset + bytes;
  const absl::Duration time = TimeOf(model_, bytes, seeks);
  if (time <= absl::ZeroDuration()) return;
  model_.wait ? model_.wait(time) : absl::SleepFor(time);
}

void ModelDisk::Device::Flush() {
  MutexLock lock(mutex_);
  if (model_.flush <= absl::ZeroDuration()) return;
  model_.wait ? model_.wait(model_.flush) : absl::SleepFor(model_.flush);
}

absl::StatusOr<std::shared_ptr<DiskFile>> ModelDisk::Wrap(
    absl::StatusOr<std::shared_ptr<DiskFile>> file, const std::string& path) {
  if (!file.ok()) return file;
  return std::make_shared<ModelFile>(device_, *std::move(file), path);
}

absl::StatusOr<std::shared_ptr<DiskFile>> ModelDisk::Open(const std::string& path) {
  if (auto status = device_->Fault("open", path); !status.ok()) return status;
  return Wrap(below_.Open(path), path);
}

absl::StatusOr<std::shared_ptr<DiskFile>> ModelDisk::Create(const std::string& path) {
  if (auto status = device_->Fault("create", path); !status.ok()) return status;
  return Wrap(below_.Create(path), path);
}

absl::Status ModelDisk::MakeDirectory(const std::string& path) {
  const absl::Status fault = device_->Fault("create", path);
  return fault.ok() ? below_.MakeDirectory(path) : fault;
}

absl::Status ModelDisk::Rename(const std::string& from, const std::string& to) {
  const absl::Status fault = device_->Fault("rename", from);
  return fault.ok() ? below_.Rename(from, to) : fault;
}

absl::Status ModelDisk::Remove(const std::string& path) {
  const absl::Status fault = device_->Fault("remove", path);
  return fault.ok() ? below_.Remove(path) : fault;
}

absl::StatusOr<std::vector<std::string>> ModelDisk::List(const std::string& directory) {
  if (auto status = device_->Fault("list", directory); !status.ok()) return status;
  return below_.List(directory);
}

absl::Status ModelDisk::SyncDirectory(const std::string& directory) {
  if (auto status = device_->Fault("sync", directory); !status.ok()) return status;
  device_->Flush();
  return below_.SyncDirectory(directory);
}

absl::Status ModelDisk::SyncAll() {
  if (auto status = device_->Fault("sync", ""); !status.ok()) return status;
  device_->Flush();
  return below_.SyncAll();
}

absl::StatusOr<DiskSpace> ModelDisk::Space() {
  if (auto status = device_->Fault("space", ""); !status.ok()) return status;
  return below_.Space();
}

}  // namespace abacus::objfs
