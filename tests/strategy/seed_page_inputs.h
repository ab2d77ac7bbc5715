#pragma once

#include <filesystem>
#include <string>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/lockstep.h"

/// What the examples of several API pages read.
namespace lockstep::tests {

/// Record files "1.tfr" to "4.tfr" in a folder of this process; file k has k records, the numbers from 10 k on.
class RecordFiles {
 public:
  RecordFiles() : folder_(::testing::TempDir() + "lockstep_seed_pages_" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
    for (int file = 1; file <= 4; ++file) {
      names.push_back(folder_ + "/" + std::to_string(file) + ".tfr");
      data::RecordWriter writer(names.back());
      for (int record = 0; record < file; ++record) writer.write(std::to_string(file * 10 + record));
      writer.close();
    }
  }
  ~RecordFiles() { std::filesystem::remove_all(folder_); }
  RecordFiles(const RecordFiles&) = delete;
  RecordFiles& operator=(const RecordFiles&) = delete;

  std::vector<std::string> names;

 private:
  std::string folder_;
};

/// The numbers in record files.
inline data::Dataset<long long> numbers_in(const std::vector<std::string>& files) {
  return data::tfrecords(files).map([](const data::Bytes& record) { return std::stoll(record.str()); });
}

inline constexpr int64_t kGlobalBatchSize = 8;

/// The dataset function of all pages.
inline data::Dataset<at::Tensor> dataset_fn(const InputContext& input_context) {
  const int64_t batch_size = input_context.get_per_replica_batch_size(kGlobalBatchSize);
  const auto d = data::from_tensors(torch::tensor({{1.0f}})).repeat().batch(batch_size);
  return d.shard(input_context.num_input_pipelines, input_context.input_pipeline_id);
}

}  // namespace lockstep::tests
