#include "apps/abacus/fsck_report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "apps/abacus/output.h"
#include "runtime/base/byte_size.h"

namespace abacus::apps {
namespace {

int CodeOf(const std::vector<CheckedVolume>& volumes) {
  int code = kFsckClean;
  for (const CheckedVolume& volume : volumes) {
    if (volume.report.repaired > 0) code |= kFsckRepaired;
    if (volume.report.left() > 0) code |= kFsckLeft;
  }
  return code;
}

// Names are bytes; what is no text of UTF-8 is replaced.
std::string Json(const std::vector<CheckedVolume>& volumes) {
  nlohmann::json all = nlohmann::json::array();
  for (const auto& [name, report] : volumes) {
    nlohmann::json faults = nlohmann::json::array();
    for (const objfs::Fault& fault : report.faults) {
      faults.push_back({{"kind", objfs::NameOf(fault.kind)},
                        {"object", fault.object},
                        {"path", fault.path},
                        {"place", fault.place},
                        {"text", fault.text},
                        {"repaired", fault.repaired()},
                        {"done", fault.done}});
    }
    all.push_back({{"volume", name},
                   {"faults", faults},
                   {"found", report.found},
                   {"repaired", report.repaired},
                   {"left", report.left()},
                   {"objects", report.objects},
                   {"directories", report.directories},
                   {"files", report.files},
                   {"symbolic_links", report.links},
                   {"others", report.others},
                   {"names", report.names},
                   {"bytes_read", report.bytes_read},
                   {"without_a_name", report.unnamed},
                   {"cut_off_bytes", report.cut_off_bytes},
                   {"unsettled", report.unsettled},
                   {"names_to_other_shards", report.elsewhere},
                   {"followed", report.followed},
                   {"in_doubt", report.in_doubt}});
  }
  return nlohmann::json{{"volumes", all}, {"exit_code", CodeOf(volumes)}}.dump(
             2, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

// Names may have bytes that a terminal takes for commands.
std::string Printable(const std::string& text) {
  std::string shown;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_control = byte < 0x20 || byte == 0x7f;
    if (is_control) {
      absl::StrAppend(&shown, "\\x", absl::Hex(byte, absl::kZeroPad2));
    } else {
      shown += c;
    }
  }
  return shown;
}

}  // namespace

void PrintFault(const std::string& volume, const objfs::Fault& fault) {
  printf("%s: %s\n", volume.c_str(), Printable(fault.Line()).c_str());
}

void PrintTotals(const CheckedVolume& volume, const FsckOptions& options,
                 const std::string& again) {
  const objfs::CheckReport& report = volume.report;
  const char* const name = volume.name.c_str();
  if (report.found > report.faults.size()) {
    printf("%s: and %s more\n", name, absl::StrCat(report.found - report.faults.size()).c_str());
  }
  if (report.unnamed > 0) {
    printf(
        "%s: %s objects without a name, as a crash leaves them: they are removed by themselves, "
        "one lease (30 s) after the volume's next start\n",
        name, absl::StrCat(report.unnamed).c_str());
  }
  if (report.cut_off_bytes > 0) {
    printf(
        "%s: its journal ends with %s bytes that were cut off, as a crash leaves them: they were "
        "never acknowledged (damage of the very last changes would look the same)\n",
        name, absl::StrCat(report.cut_off_bytes).c_str());
  }
  if (report.unsettled > 0) {
    printf("%s: nothing is said of %s objects that were changed all the time\n", name,
           absl::StrCat(report.unsettled).c_str());
  }
  if (report.in_doubt > 0) {
    printf(
        "%s: %s transactions over several shards are under way or in doubt, as a crash leaves "
        "them: "
        "they are decided by themselves, while all shards are served. Nothing is said of what they "
        "hold\n",
        name, absl::StrCat(report.in_doubt).c_str());
  }
  std::string result = "clean";
  if (report.found > 0) {
    result = absl::StrCat(report.found, " faults, ", report.repaired, " repaired, ", report.left(),
                          " left");
  }
  const std::string read =
      options.data ? absl::StrCat(runtime::FormatBytes(report.bytes_read), " of contents read")
                   : "contents of files not read (--data)";
  printf("%s: %s: %s directories, %s files, %s symbolic links, %s others, %s names; %s\n", name,
         result.c_str(), absl::StrCat(report.directories).c_str(),
         absl::StrCat(report.files).c_str(), absl::StrCat(report.links).c_str(),
         absl::StrCat(report.others).c_str(), absl::StrCat(report.names).c_str(), read.c_str());
  if (report.left() > 0 && !again.empty()) {
    printf("%s: to have repaired what can be: %s\n", name, again.c_str());
  }
}

void PrintNotFollowed(const CheckedVolume& volume, const std::string& why) {
  const objfs::CheckReport& report = volume.report;
  if (report.elsewhere <= report.followed) return;
  printf("%s: %s names that lead to other shards of the volume were not followed: %s\n",
         volume.name.c_str(), absl::StrCat(report.elsewhere - report.followed).c_str(),
         why.c_str());
}

int FinishFsck(const std::vector<CheckedVolume>& volumes, const FsckOptions& options) {
  if (!options.json.empty()) {
    const absl::Status written = WriteFile(options.json, Json(volumes));
    if (!written.ok()) return FailFsck(written);
  }
  return CodeOf(volumes);
}

int FailFsck(const absl::Status& status) {
  Fail(status);
  return absl::IsInvalidArgument(status) ? kFsckUsage : kFsckError;
}

}  // namespace abacus::apps
