// abacus_lab: one node of an experiment. lab.py starts a process of it on each node of the testbed.

#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <string>

#include "experiments/lab/client.h"
#include "experiments/lab/job.h"
#include "experiments/lab/server.h"

namespace {

using namespace abacus::lab;  // NOLINT: a program

int Exit(const absl::Status& status) {
  if (status.ok()) return 0;
  fprintf(stderr, "abacus_lab: %s\n", status.ToString().c_str());
  return 1;
}

void AddNodeOptions(CLI::App* command, LabNodeOptions* options) {
  command->add_option("--config", options->config, "the runtime's configuration")->required();
  command->add_option("--ways", options->ways,
                      "of nodes of a testbed in user space, as 127.231.3.");
  command->add_option("--share", options->share, "of a core: the testbed's, for this node");
  command->add_option("--machine", options->machine, "CPU time here of what the model has")
      ->check(CLI::Range(0.1, 10.0));
  command->add_flag("!--as-it-is", options->paper, "messages cost what this machine makes of them");
}

}  // namespace

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // who started it has to end it
  CLI::App app("One node of an experiment: experiments/lab/README.md");
  app.require_subcommand(1);

  ServerOptions server_options;
  CLI::App* server = app.add_subcommand("server", "a storage server");
  AddNodeOptions(server, &server_options.node);
  server->add_option("--prepare", server_options.prepare, "what its volume has, as JSON");
  server->add_flag("--whole-read-sets", server_options.whole_read_sets,
                   "a change of a directory rests on all of its blocks");
  server->add_flag("--columns", server_options.columns, "keep columns for another server only");
  server->add_option("--others", server_options.others, "servers that the volume is over as well");
  server->add_option("--disks", server_options.disks, "each counts as a server of the volume")
      ->check(CLI::Range(1, 16));
  server->add_option("--fails", server_options.fails, "of the volume's disks, when it is prepared");
  server->add_option("--disk-bandwidth", server_options.disk_bytes_per_second, "bytes a second")
      ->check(CLI::PositiveNumber);
  server->add_option("--disk-seek", server_options.disk_seek_s, "seconds")
      ->check(CLI::NonNegativeNumber);
  server->add_flag("!--no-disk", server_options.disk, "without the model of a disk");

  LabNodeOptions client_options;
  std::string job_text;
  CLI::App* client = app.add_subcommand("client", "a client and its job");
  AddNodeOptions(client, &client_options);
  client->add_option("--server", client_options.servers, "control addresses")->required();
  client->add_option("--job", job_text, "what it does, as JSON")->required();

  CLI11_PARSE(app, argc, argv);
  if (server->parsed()) return Exit(RunServer(server_options));
  const auto job = ParseJob(job_text);
  if (!job.ok()) return Exit(job.status());
  return Exit(RunClient(client_options, *job));
}
