#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "lockstep/base/progress/progress.h"
#include "tools/data/data_inspect.h"
#include "tools/data/data_write.h"
#include "tools/print_result.h"
#include "tools/subcommands.h"

namespace lockstep::tools {
namespace {

void add_inspect(CLI::App& data) {
  auto* command = data.add_subcommand(
      "inspect", "Show the contents of files: format, records, sizes, keys, first values; damage with its offset");
  auto files = std::make_shared<std::vector<std::string>>();
  auto options = std::make_shared<InspectOptions>();
  auto json = std::make_shared<bool>(false);
  command->add_option("FILE", *files, "Record, text, CSV, NumPy (npy, npz), tar, JPEG or PNG files")->required();
  command->add_option("--first", options->first, "How many of the first records to show")->capture_default_str();
  command->add_option("--records", options->max_records, "Read no more than this many records; 0 reads all")
      ->capture_default_str();
  command->add_flag("--json", *json, "Print one JSON object per file");
  auto quiet = std::make_shared<bool>(false);
  command->add_flag("--quiet", *quiet, "Show no progress on standard error");
  command->callback([=] {
    const progress::Display display(!*quiet);
    bool sound = true;
    for (const std::string& file : *files) {
      const Inspection result = inspect(file, *options);
      sound = sound && result.damage.empty();
      if (*json) {
        print_result(to_json(result), ResultStyle::Json);
      } else {
        print(result, std::cout);
      }
    }
    if (!sound) throw CLI::RuntimeError(1);
  });
}

void add_write(CLI::App& data) {
  auto* command = data.add_subcommand("write",
                                      "Convert files to a record file: a line of text becomes a record; a row of a "
                                      "CSV, npy or npz file and a sample of "
                                      "a tar shard become a tf.Example; records are copied");
  auto options = std::make_shared<WriteOptions>();
  auto json = std::make_shared<bool>(false);
  command->add_option("OUTPUT", options->output, "The record file; with --shards OUTPUT-00000-of-00004 and so on")
      ->required();
  command->add_option("--from", options->inputs, "Files to read, in this order")->required();
  command->add_option("--compression", options->compression, "none, gzip or zlib")
      ->capture_default_str()
      ->check(CLI::IsMember({"none", "gzip", "zlib"}));
  command->add_option("--shards", options->num_shards, "Distribute the records over this many files")
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000));
  command->add_flag("--header", options->csv_header, "The first line of CSV files contains the column names");
  command->add_flag("--json", *json, "Print one JSON object per file");
  auto quiet = std::make_shared<bool>(false);
  command->add_flag("--quiet", *quiet, "Show no progress on standard error");
  command->callback([=] {
    const progress::Display display(!*quiet);
    for (const WrittenFile& file : write_records(*options)) {
      print_result({{"file", file.path}, {"records", file.records}, {"bytes", file.bytes}},
                   *json ? ResultStyle::Json : ResultStyle::Text);
    }
  });
}

}  // namespace

void add_data(CLI::App& app) {
  auto* data = app.add_subcommand("data", "Inspect data files, and write record files");
  data->require_subcommand(1);
  add_inspect(*data);
  add_write(*data);
}

}  // namespace lockstep::tools
