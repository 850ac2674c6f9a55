// The command `abacus`: reads the command line and hands over to the sub-command.

#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/abacus/commands.h"
#include "apps/abacus/fsck_report.h"
#include "apps/abacus/top_view.h"
#include "runtime/base/nearest.h"

namespace abacus::apps {
namespace {

constexpr char kFooter[] = R"(
examples:
  abacus serve --data /srv/abacus           a storage server at 127.0.0.1:7070
  abacus put LinuxBible.txt /tmp/text       store a file in its volume
  abacus run grep kernel LinuxBible.txt     search it; the engine decides where grep runs
  abacus run grep --pin client kernel LinuxBible.txt
  abacus run word-count LinuxBible.txt      its lines, words and bytes
  abacus run aggregate --sum 5 --where 3=north sales.csv
  abacus mount 127.0.0.1:7070/home /mnt     a directory that shows the volume
  abacus volume create work                 another one: work:PATH, 127.0.0.1:7070/work
  abacus fsck /srv/abacus                   check a server's volumes while it is stopped
  abacus status                             nodes, objects, the last moves and why
  abacus top                                what each object costs, live
  abacus explain 1073741824.5.2             why that object is where it is
  abacus move 1073741824.5.2 server-1       move it by hand

exit codes:
  0  done                1  done, and the answer is no (nothing matched, not healthy, not moved)
  2  wrong usage, or it could not be done
  fsck has those of e2fsck: abacus fsck --help
)";

constexpr char kFsck[] = "fsck";

// What one command line says. The callbacks of the sub-commands set `command`.
class CommandLine {
 public:
  CommandLine();
  int Run(int argc, char** argv);

 private:
  // A sub-command of `parent` that runs `command`.
  CLI::App* Add(CLI::App* parent, const std::string& name, const std::string& what,
                std::function<int()> command);
  void AddServer();
  void AddFiles();
  void AddVolumes();
  void AddFsck();
  void AddRun();
  void AddReaders(CLI::App* run);
  void AddTop();
  void AddControl();
  void AddRules();
  void AddConfig();
  static void AddClientOptions(CLI::App* command, ClientOptions* options);
  // A sub-command of `run`.
  CLI::App* AddApplication(CLI::App* run, const std::string& name, const std::string& what,
                           RunOptions* options, std::function<int()> command);
  // "[VOLUME:]PATH"; `Name`: a string, or a vector of them.
  template <typename Name>
  static CLI::Option* AddFileName(CLI::App* command, Name* name, const std::string& what);
  static void AddControlOptions(CLI::App* command, ControlOptions* options, bool has_table);
  static void AddJson(CLI::App* command, std::string* json);
  int Misused(const CLI::Error& error);

  CLI::App app_{"Active storage: objects that move to their data while they are used.", "abacus"};
  std::function<int()> command_;

  ServeOptions serve_;
  PutOptions put_;
  GetOptions get_;
  ListOptions list_;
  RemoveOptions remove_;
  VolumeOptions volume_list_, volume_create_, volume_delete_;
  VolumeOptions volume_add_server_, volume_replace_server_, volume_drain_;
  VolumeOptions volume_restore_map_;
  RepairOptions volume_status_, rebuild_, scrub_;
  FsckOptions fsck_;
  MountOptions mount_;
  UnmountOptions unmount_;
  StackOptions stack_;
  RunGrepOptions grep_;
  RunWordCountOptions word_count_;
  RunAggregateOptions aggregate_;
  StatusOptions status_;
  TopOptions top_;
  double top_interval_s_ = 1;
  ExplainOptions explain_;
  MoveOptions move_;
  PinOptions pin_, unpin_;
  AllowOptions allow_;
  AttachOptions attach_, detach_;
  EngineOptions engine_;
  std::string config_file_;
  DoctorOptions doctor_;
};

CommandLine::CommandLine() {
  app_.set_version_flag("--version", "abacus " ABACUS_VERSION);
  app_.require_subcommand(1);
  app_.footer(kFooter);
  AddServer();
  AddFiles();
  AddVolumes();
  AddFsck();
  AddRun();
  AddTop();
  AddControl();
  AddConfig();
}

CLI::App* CommandLine::Add(CLI::App* parent, const std::string& name, const std::string& what,
                           std::function<int()> command) {
  CLI::App* added = parent->add_subcommand(name, what);
  added->callback([this, command = std::move(command)] { command_ = command; });
  return added;
}

void CommandLine::AddJson(CLI::App* command, std::string* json) {
  command->add_option("--json", *json, "write the same figures to this file as JSON")
      ->type_name("FILE");
}

void CommandLine::AddClientOptions(CLI::App* command, ClientOptions* options) {
  command->add_option("--server", options->servers, "control addresses of the servers to join")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->envname("ABACUS_SERVER")
      ->type_name("HOST:PORT[,...]")
      ->capture_default_str();
  command->add_option("--config", options->config, "configuration of this process as a client")
      ->type_name("FILE");
}

void CommandLine::AddControlOptions(CLI::App* command, ControlOptions* options, bool has_table) {
  command
      ->add_option("--server", options->server,
                   "control address of a server; of several, the first is asked")
      ->transform([](const std::string& servers) { return servers.substr(0, servers.find(',')); })
      ->envname("ABACUS_SERVER")
      ->type_name("HOST:PORT[,...]")
      ->capture_default_str();
  if (has_table) AddJson(command, &options->json);
}

void CommandLine::AddServer() {
  CLI::App* serve =
      Add(&app_, "serve", "be a storage server until SIGTERM", [this] { return Serve(serve_); });
  serve->add_option("--config", serve_.config, "configuration")->type_name("FILE");
  serve->add_option("--data", serve_.data, "where the files are kept (node.data_dir)")
      ->type_name("DIR");
  serve
      ->add_option("--listen", serve_.listen,
                   "control address; the data plane listens at the next port; port 0: any two")
      ->type_name("HOST:PORT");
  serve->add_option("--name", serve_.name, "name in tables and logs (node.name)");
  serve
      ->add_option("--ready-file", serve_.ready_file,
                   "write the control address to this file once the server is ready")
      ->type_name("FILE");
  serve->add_option("--ready-fd", serve_.ready_fd, "write it to this descriptor and close it")
      ->type_name("FD")
      ->check(CLI::NonNegativeNumber);
  serve
      ->add_option("--lease", serve_.lease_s,
                   "how long others wait for a volume's client that is silent; twice as long for "
                   "its locks")
      ->type_name("SECONDS")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
}

template <typename Name>
CLI::Option* CommandLine::AddFileName(CLI::App* command, Name* name, const std::string& what) {
  return command
      ->add_option("FILE", *name,
                   what +
                       "; where there is one volume it needs no name, and a PATH with a colon "
                       "begins with a /")
      ->type_name("[VOLUME:]PATH");
}

void CommandLine::AddFiles() {
  CLI::App* put = Add(&app_, "put", "store a file in a volume, replacing the one of that name",
                      [this] { return Put(put_); });
  AddClientOptions(put, &put_.client);
  AddFileName(put, &put_.name,
              "its name there; directories are made, and where the server has no volume, one is")
      ->required();
  put->add_option("SOURCE", put_.file, "what to store; standard input where none is named");

  CLI::App* get =
      Add(&app_, "get", "print or copy a file of a volume", [this] { return Get(get_); });
  AddClientOptions(get, &get_.client);
  AddFileName(get, &get_.name, "the file")->required();
  get->add_option("TARGET", get_.file, "where to; standard output where none is named");

  CLI::App* list = Add(&app_, "ls", "list the files of a volume", [this] { return List(list_); });
  AddClientOptions(list, &list_.client);
  AddFileName(list, &list_.name, "a directory, else the volume's root");
  AddJson(list, &list_.json);

  CLI::App* remove = Add(&app_, "rm", "remove a file, or an empty directory, from a volume",
                         [this] { return Remove(remove_); });
  AddClientOptions(remove, &remove_.client);
  AddFileName(remove, &remove_.name, "the file")->required();
}

void CommandLine::AddVolumes() {
  CLI::App* volume = app_.add_subcommand("volume", "a server's volumes: what can be mounted");
  volume->require_subcommand(1);
  CLI::App* list = Add(volume, "list", "the volumes, their space and clients",
                       [this] { return VolumeCommand(volume_list_); });
  AddClientOptions(list, &volume_list_.client);
  AddJson(list, &volume_list_.json);
  const auto add_named = [&](const char* name, const char* what, VolumeOptions* options,
                             VolumeOptions::What which) {
    options->what = which;
    CLI::App* added = Add(volume, name, what, [options] { return VolumeCommand(*options); });
    AddClientOptions(added, &options->client);
    added->add_option("NAME", options->name, "the volume")->required();
    return added;
  };
  CLI::App* create =
      add_named("create", "make an empty volume", &volume_create_, VolumeOptions::What::kCreate);
  create->add_option("--quota", volume_create_.quota,
                     "how much its files may hold, as '10 GiB'; without it, what the disk has");
  create
      ->add_option(
          "--servers", volume_create_.servers,
          "servers that its files may be spread over by stacks such as "
          "'cache/raid5/(isolation/storage)*4' or 'cache/mirror/(isolation/storage)*2'; these are "
          "asked to make it, and not --server; names and inodes are on the first, unless "
          "--metadata-copies or --metadata-shards say otherwise")
      ->delimiter(',')
      ->type_name("HOST:PORT,...");
  create
      ->add_option("--map", volume_create_.map,
                   "what keeps which servers the volume has, and which of them answers for it, so "
                   "that another one can take over (--metadata-copies 2): an etcd, or a server of "
                   "this program, mostly one of --servers, which keeps no names and inodes of the "
                   "volume then: with two copies there are three. Without it, that is kept where "
                   "the names and inodes are, and nobody takes over")
      ->type_name("etcd://HOST:PORT,... or abacus://HOST:PORT");
  create
      ->add_option(
          "--metadata-copies", volume_create_.metadata_copies,
          "with --map: how many of the servers, the first that do not keep the map, keep the "
          "names and inodes, or each shard of them, 1 or 2; with 1, as without this, they are "
          "lost with their server")
      ->type_name("COUNT");
  create
      ->add_option(
          "--metadata-shards", volume_create_.metadata_shards,
          "spread names and inodes over the first COUNT of --servers that do not keep the map, "
          "2 to 16, as shards that stay. Each has an equal part of the quota, and one that is full "
          "has no more room though others may. Directories in the volume's root, and where "
          "`setfattr -n user.abacus.spread -v yes DIR` said so, go to the shard that a hash of "
          "their name gives, everything else to that of its directory. While a shard is away, "
          "mounts that are there go on with the rest, and nothing can be newly mounted, "
          "stored, fetched, searched, rebuilt or scrubbed; without --metadata-copies 2 it "
          "is away, or lost, with its server")
      ->type_name("COUNT");
  create
      ->add_option("--stack", volume_create_.stack,
                   "layers of the files that are made where neither their directory (abacus stack "
                   "--set) nor a mount's -o stack= says others, of `put` too; as "
                   "'cache/raid5/(isolation/storage)*4' over four servers, of which one may be "
                   "missing; it stays. Without it, one server has all of a file")
      ->type_name("TEXT");
  add_named("delete", "remove a volume that nobody uses, with all that is in it", &volume_delete_,
            VolumeOptions::What::kDelete);

  const auto add_server = [&](const char* option, std::string* server, CLI::App* command,
                              const char* what) {
    command->add_option(option, *server, what)->type_name("HOST:PORT")->required();
  };
  CLI::App* added = add_named("add-server", "let new files be spread over one server more",
                              &volume_add_server_, VolumeOptions::What::kAddServer);
  add_server("SERVER", &volume_add_server_.now, added, "the new one");
  CLI::App* replaced = add_named(
      "replace-server", "put an empty server in the place of one that is lost, to be rebuilt",
      &volume_replace_server_, VolumeOptions::What::kReplaceServer);
  add_server("LOST", &volume_replace_server_.before, replaced,
             "as `abacus volume status` names it");
  add_server("SERVER", &volume_replace_server_.now, replaced, "the new one");
  replaced->add_flag("--force", volume_replace_server_.force,
                     "also one that answers: what it keeps is given up");
  CLI::App* drained = add_named(
      "drain",
      "have another server keep what OLD, which lives, keeps of the volume, so that OLD can leave "
      "it; the volume is used meanwhile, and what was broken off goes on when it is said again",
      &volume_drain_, VolumeOptions::What::kDrain);
  add_server("OLD", &volume_drain_.before, drained,
             "the server that leaves, as `abacus volume status` names it");
  add_server("--to", &volume_drain_.now, drained,
             "the server that keeps it then. Meanwhile files are as redundant as before; of names "
             "and inodes, if OLD keeps them, there is one copy less until they are copied");
  CLI::App* restored = add_named(
      "restore-map",
      "put a volume's row back into its map, which has lost it, from what the servers remember",
      &volume_restore_map_, VolumeOptions::What::kRestoreMap);
  restored->add_flag(
      "--force", volume_restore_map_.force,
      "also where not all servers of the volume answer, or one remembers nothing: what they alone "
      "have of names and inodes is lost, and they are filled again from the one that answers for "
      "the volume; none of them may be serving");
  const auto add_repair = [&](CLI::App* parent, const char* name, const char* what,
                              RepairOptions* options, RepairOptions::What which) {
    options->what = which;
    CLI::App* added = Add(parent, name, what, [options] { return RepairCommand(*options); });
    AddClientOptions(added, &options->client);
    added->add_option("NAME", options->name, "the volume")->required();
    AddJson(added, &options->json);
    return added;
  };
  add_repair(volume, "status",
             "of a volume: which servers answer, which files are whole, and how many are kept once",
             &volume_status_, RepairOptions::What::kStatus);
  add_repair(&app_, "rebuild", "write anew what servers missed that were away", &rebuild_,
             RepairOptions::What::kRebuild)
      ->add_option("--to", rebuild_.to,
                   "first put this server, empty, in the place of the one that does not answer")
      ->type_name("HOST:PORT");
  add_repair(
      &app_, "scrub",
      "read all of a volume, names and inodes too, and repair what is damaged from what it has "
      "elsewhere",
      &scrub_, RepairOptions::What::kScrub);

  CLI::App* mount = Add(&app_, "mount", "show a volume as a directory of this machine",
                        [this] { return Mount(mount_); });
  mount->add_option("SOURCE", mount_.source, "where the volume is; alone there, it needs no name")
      ->type_name("SERVER[,SERVER...][/VOLUME]")
      ->required();
  mount->add_option("DIR", mount_.directory, "where to show it")->required();
  mount
      ->add_option(
          "-o", mount_.options,
          "as mount(8) has them, and: exclusive (no other client changes the volume, so the kernel "
          "may keep names, attributes and pages), stack=TEXT (layers of the files that are made; "
          "without it those of the volume's --stack, else of a server's volume "
          "cache/isolation/storage, with --local isolation/storage), "
          "direct_io, attr_timeout=SECONDS and entry_timeout=SECONDS (how long the kernel may keep "
          "attributes and names without asking whether another client changed them: 0, and 30 at "
          "most; exclusive: 600), "
          "known_inodes=COUNT (of so many files this process keeps attributes while the server "
          "tells of changes, and four times as many names: 131072, some 100 MB), "
          "config=FILE (as --config)")
      ->type_name("WORD[,...]")
      ->allow_extra_args(false);
  mount->add_flag("--local", mount_.local,
                  "SOURCE is a directory, as `abacus serve --data` has it: this process keeps the "
                  "files there itself, without a server, and alone: nobody else can join, and the "
                  "mount is exclusive; -o volume=NAME where there are several volumes, and where "
                  "there is none, one is made");
  mount->add_flag("-f,--foreground", mount_.foreground, "do not return until it is unmounted");
  mount->add_option("--config", mount_.config, "configuration of this process as a client")
      ->type_name("FILE");

  CLI::App* unmount =
      Add(&app_, "umount", "take the directory away again", [this] { return Unmount(unmount_); });
  unmount->add_option("DIR", unmount_.directory, "where the volume is shown")->required();
  unmount->add_flag("-l,--lazy", unmount_.lazily, "also where it is in use");

  CLI::App* stack = Add(&app_, "stack", "the layers of a file on a mount, top first",
                        [this] { return StackCommand(stack_); });
  using What = StackOptions::What;
  CLI::Option* path = stack->add_option("PATH", stack_.path, "a file, or a directory");
  CLI::Option* set = stack
                         ->add_option_function<std::string>(
                             "--set",
                             [this](const std::string& text) {
                               stack_.what = What::kSet;
                               stack_.stack = text;
                             },
                             "the layers of the files that will be made in directory PATH, and in "
                             "directories that will be made there")
                         ->type_name("TEXT");
  CLI::Option* unset = stack->add_flag_callback(
      "--unset", [this] { stack_.what = What::kUnset; }, "takes that back");
  stack->add_option("--for", stack_.pattern, "with --set, --unset: of names like 'PATTERN' only")
      ->check([](const std::string& pattern) {
        return pattern.empty() ? std::string("give it a pattern, as '*.log'") : std::string();
      })
      ->type_name("PATTERN");
  CLI::Option* state = stack->add_flag_callback(
      "--state", [this] { stack_.what = What::kState; },
      "what this mount's layers of PATH, and the one below them, tell of themselves");
  CLI::Option* kinds = stack->add_flag_callback(
      "--kinds", [this] { stack_.what = What::kKinds; },
      "the kinds of layers that there are, with their options");
  set->excludes(unset)->excludes(state)->excludes(kinds);
  unset->excludes(state)->excludes(kinds);
  state->excludes(kinds);
  kinds->excludes(path);
}

void CommandLine::AddFsck() {
  CLI::App* fsck = Add(&app_, kFsck, "check volumes, and repair what can be",
                       [this] { return FsckCommand(fsck_); });
  fsck->footer(
      "\nWithout --repair nothing is written. With it, what no name leads to any more goes to\n"
      "/lost+found under its number; nothing is removed that may hold bytes of a user's. While a\n"
      "server has the volume open, names that lead nowhere and counts are repaired, and the rest\n"
      "waits for a check of its directory. What a store knows of itself (superblock, journal,\n"
      "tables) is looked at first, and made right from what is left of it.\n\n"
      "A volume with shards (volume create --metadata-shards) is checked as a whole by HOST:PORT.\n"
      "In a DIRECTORY each shard that its server has is one of the volumes, called NAME, NAME~1\n"
      "and so on: it is checked by itself, and --volume NAME~1 means that one.\n\n"
      "exit codes, as those of e2fsck: 0 clean, 1 repaired, 4 faults are left (5: others were\n"
      "repaired), 8 it could not be done, 16 wrong usage\n");
  AddClientOptions(fsck, &fsck_.client);
  fsck->add_option("WHERE", fsck_.where,
                   "the directory of a server that is not running (its --data), or the control "
                   "address of one that is")
      ->type_name("DIRECTORY|HOST:PORT");
  fsck->add_option("--volume", fsck_.volume, "the volume; of a directory, all without it")
      ->type_name("NAME");
  fsck->add_flag("--repair", fsck_.repair, "make right what can be");
  fsck->add_flag("--data", fsck_.data,
                 "read the contents of all files as well, and compare them with their checksums");
  AddJson(fsck, &fsck_.json);
}

CLI::App* CommandLine::AddApplication(CLI::App* run, const std::string& name,
                                      const std::string& what, RunOptions* options,
                                      std::function<int()> command) {
  CLI::App* added = Add(run, name, what, std::move(command));
  AddClientOptions(added, &options->client);
  added->add_option("--pin", options->pin, "hold its object there; else the engine decides")
      ->check(CLI::IsMember({"client", "server"}));
  added->add_option("--block", options->block_bytes, "bytes of the file that are read at once")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE")
      ->default_str("64KiB");
  added->add_flag("-q,--quiet", options->quiet, "no progress on standard error");
  AddJson(added, &options->json);
  return added;
}

void CommandLine::AddRun() {
  CLI::App* run = app_.add_subcommand("run", "run an application on files of a volume");
  run->require_subcommand(1);
  CLI::App* grep = AddApplication(run, "grep", "print the lines that match, as grep -n prints them",
                                  &grep_.run, [this] { return RunGrep(grep_); });
  grep->footer(
      "\nPATTERN is a basic regular expression, as grep takes it, in the C locale. The exit code "
      "is\n"
      "grep's: 0 where a line matched, 1 where none did, 2 on errors. Write -- before a PATTERN "
      "that\n"
      "begins with a dash.\n");
  grep->add_option("PATTERN", grep_.pattern, "what to search for")->required();
  AddFileName(grep, &grep_.name, "the file")->required();
  AddReaders(run);
}

void CommandLine::AddReaders(CLI::App* run) {
  CLI::App* count = AddApplication(run, "word-count", "count lines, words and bytes, as wc does",
                                   &word_count_.run, [this] { return RunWordCount(word_count_); });
  count->footer(
      "\nIt prints what wc prints in the C locale, and a total where several files are named. A "
      "FILE that\n"
      "cannot be opened is told and left out, and the exit code is 2.\n");
  AddFileName(count, &word_count_.names, "the files")->required();

  CLI::App* aggregate =
      AddApplication(run, "aggregate", "add up a column of a table in text", &aggregate_.run,
                     [this] { return RunAggregate(aggregate_); });
  aggregate->footer(
      "\nA row is a line, and its columns end at each separator, which cannot be quoted. It prints "
      "how\n"
      "many rows count, and the sum, least and most of the column. The exit code is 1 where no row "
      "counts.\n"
      "COLUMN is a number, counted from 1, or with --header a name.\n");
  aggregate->add_option("--sum", aggregate_.sum, "the column that is added up")
      ->type_name("COLUMN")
      ->required();
  aggregate->add_option("--where", aggregate_.where, "only rows that have exactly this there")
      ->type_name("COLUMN=VALUE");
  aggregate->add_option("--separator", aggregate_.separator, "what columns end at, one character")
      ->type_name("CHARACTER")
      ->capture_default_str();
  aggregate->add_flag("--header", aggregate_.header, "the first line has the columns' names");
  AddFileName(aggregate, &aggregate_.name, "the table")->required();
}

void CommandLine::AddTop() {
  CLI::App* top = Add(&app_, "top", "what each object costs, live", [this] {
    top_.interval = absl::Seconds(top_interval_s_);
    return Top(top_);
  });
  AddControlOptions(top, &top_.control, true);
  top->add_option("--sort", top_.sort, "which objects come first")
      ->check(CLI::IsMember(TopSortWords()))
      ->capture_default_str();
  top->add_option("--interval", top_interval_s_, "seconds between two looks")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  top->add_option("--objects", top_.objects_max, "show at most that many objects")
      ->capture_default_str();
  CLI::Option* batch = top->add_flag("--batch", top_.batch, "print, and do not wait for keys");
  top->add_option("-n", top_.rounds, "how often to print")
      ->needs(batch)
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
}

void CommandLine::AddControl() {
  CLI::App* status =
      Add(&app_, "status", "health, nodes, objects and where they are, last moves and why",
          [this] { return Status(status_); });
  AddControlOptions(status, &status_.control, true);
  status->add_option("--nodes", status_.nodes_max, "show at most that many nodes")
      ->capture_default_str();
  status->add_option("--objects", status_.objects_max, "show at most that many objects")
      ->capture_default_str();
  status->add_option("--moves", status_.moves_max, "show at most that many moves")
      ->capture_default_str();

  CLI::App* explain =
      Add(&app_, "explain", "why an object is where it is", [this] { return Explain(explain_); });
  AddControlOptions(explain, &explain_.control, true);
  explain->add_option("--last", explain_.decisions_max, "that many decisions, the newest first")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  explain->add_flag("--details", explain_.details, "with every placement considered");
  explain->add_option("RID", explain_.rid, "the object, as status shows it")->required();

  CLI::App* move = Add(&app_, "move", "move an object by hand, wherever it is now",
                       [this] { return Move(move_); });
  AddControlOptions(move, &move_.control, false);
  move->add_option("RID", move_.rid, "the object, as status shows it")->required();
  move->add_option("NODE", move_.node, "a node's name or id")->required();

  CLI::App* pin =
      Add(&app_, "pin", "hold an object where it is, or at a node", [this] { return Pin(pin_); });
  AddControlOptions(pin, &pin_.control, false);
  pin->add_option("RID", pin_.rid, "the object, as status shows it")->required();
  pin->add_option("NODE", pin_.node, "a node's name or id; where it is where none is named");

  CLI::App* unpin =
      Add(&app_, "unpin", "let the engine move an object again", [this] { return Pin(unpin_); });
  unpin_.unpin = true;
  AddControlOptions(unpin, &unpin_.control, false);
  unpin->add_option("RID", unpin_.rid, "the object, as status shows it")->required();
  AddRules();
}

void CommandLine::AddRules() {
  CLI::App* allow = Add(&app_, "allow", "limit the nodes that the engine may move an object to",
                        [this] { return Allow(allow_); });
  AddControlOptions(allow, &allow_.control, false);
  allow->add_option("RID", allow_.rid, "the object, as status shows it")->required();
  allow->add_option("NODE", allow_.nodes, "nodes' names or ids; none lifts the limit");

  CLI::App* attach = Add(&app_, "attach", "let the engine move objects together only",
                         [this] { return Attach(attach_); });
  AddControlOptions(attach, &attach_.control, false);
  attach->add_option("RID", attach_.rids, "the objects, as status shows them")->required();

  CLI::App* detach = Add(&app_, "detach", "let the engine move objects each for itself again",
                         [this] { return Attach(detach_); });
  detach_.detach = true;
  AddControlOptions(detach, &detach_.control, false);
  detach->add_option("RID", detach_.rids, "the objects, as status shows them")->required();

  CLI::App* engine = Add(&app_, "engine", "how a server's engine goes on, and how it is to",
                         [this] { return Engine(engine_); });
  AddControlOptions(engine, &engine_.control, false);
  const auto flag = [engine](const char* name, const char* help, std::optional<bool>* to,
                             bool value) {
    engine->add_flag_callback(
        name, [to, value] { *to = value; }, help);
  };
  flag("--suspend", "decide and explain, and move nothing", &engine_.suspended, true);
  flag("--resume", "move again", &engine_.suspended, false);
  flag("--dry-run", "record what would be moved, and move nothing", &engine_.dry_run, true);
  flag("--no-dry-run", "move what is decided", &engine_.dry_run, false);
}

void CommandLine::AddConfig() {
  CLI::App* config = app_.add_subcommand("config", "look at configurations");
  config->require_subcommand(1);
  CLI::App* check = Add(config, "check", "say what is wrong with a file, with line and column",
                        [this] { return ConfigCheck(config_file_); });
  check->add_option("FILE", config_file_)->required();
  CLI::App* show = Add(config, "show", "print all keys, explained, with a file's values",
                       [this] { return ConfigShow(config_file_); });
  show->add_option("FILE", config_file_, "the defaults where none is named");

  CLI::App* doctor = Add(&app_, "doctor", "what this machine lacks, and what mends it",
                         [this] { return Doctor(doctor_); });
  AddJson(doctor, &doctor_.json);
}

int CommandLine::Misused(const CLI::Error& error) {
  // The innermost command that was named is the one whose options were meant.
  CLI::App* command = &app_;
  std::string prefix = "abacus";
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    prefix += " " + command->get_name();
  }
  const std::vector<std::string> rest = app_.remaining(true);
  if (rest.empty() || rest.front() == "--") {
    fprintf(stderr, "%s: %s\n", prefix.c_str(), error.what());
  } else {
    const std::string given = rest.front().substr(0, rest.front().find('='));
    const bool is_option = given.size() > 1 && given[0] == '-';
    std::vector<std::string> names;
    if (is_option) {
      for (const CLI::Option* option : command->get_options()) {
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
      }
    } else {
      for (const CLI::App* sub : command->get_subcommands({})) names.push_back(sub->get_name());
    }
    const std::string nearest = runtime::Nearest(given, names);
    fprintf(stderr, "%s: unknown %s '%s'%s\n", prefix.c_str(),
            is_option       ? "option"
            : names.empty() ? "argument"
                            : "command",
            given.c_str(), nearest.empty() ? "" : (", did you mean '" + nearest + "'?").c_str());
  }
  fprintf(stderr, "'%s --help' tells what there is\n", prefix.c_str());
  return command->get_name() == kFsck ? kFsckUsage : kExitError;
}

int CommandLine::Run(int argc, char** argv) {
  try {
    app_.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app_.exit(help) == 0 ? kExitOk : kExitError;
  } catch (const CLI::CallForVersion& version) {
    return app_.exit(version) == 0 ? kExitOk : kExitError;
  } catch (const CLI::Error& error) {
    return Misused(error);
  }
  return command_();
}

// As mount(8) calls the helper of a file system: SOURCE DIR [-sfnv] [-N namespace] [-o options]
// [-t type]. Linked to as /sbin/mount.fuse.abacus, the program takes that for `abacus mount`.
bool IsMountHelper(const std::string& program) {
  return program.substr(program.rfind('/') + 1) == "mount.fuse.abacus";
}

int RunMountHelper(const std::vector<std::string>& arguments) {
  MountOptions mount;
  std::vector<std::string> names;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const bool has_next = i + 1 < arguments.size();
    if (argument == "-o" && has_next) {
      mount.options.push_back(arguments[++i]);
    } else if ((argument == "-t" || argument == "-N") && has_next) {
      ++i;
    } else if (argument == "-f") {
      return kExitOk;  // to look as if
    } else if (argument[0] != '-') {
      names.push_back(argument);
    }
  }
  if (names.size() != 2) {
    fprintf(stderr, "mount.fuse.abacus: SERVER[,SERVER...][/VOLUME] DIR are what it needs\n");
    return kExitError;
  }
  mount.source = names[0];
  mount.directory = names[1];
  return Mount(mount);
}

}  // namespace
}  // namespace abacus::apps

int main(int argc, char** argv) {
  // Output that nobody reads any more is an error of the write, told as such.
  signal(SIGPIPE, SIG_IGN);
  if (argc > 0 && abacus::apps::IsMountHelper(argv[0])) {
    return abacus::apps::RunMountHelper({argv + 1, argv + argc});
  }
  return abacus::apps::CommandLine().Run(argc, argv);
}
