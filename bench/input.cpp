#include "bench/input.h"

#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <random>
#include <unistd.h>

#include <torch/types.h>

#include "bench/median.h"
#include "lockstep/base/crc32c.h"
#include "lockstep/data/formats/records/example_builder.h"
#include "lockstep/data/formats/records/record_reader.h"
#include "lockstep/data/formats/records/record_writer.h"
#include "lockstep/device/thread_share.h"
#include "lockstep/lockstep.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSmallBytes = 784;
constexpr int64_t kLargeBytes = 110'000;

/// A temporary folder, or the user's.
class Folder {
 public:
  explicit Folder(const std::string& given) : path_(given), own_(given.empty()) {
    if (own_) path_ = fs::temp_directory_path() / ("lockstep-bench-" + std::to_string(std::random_device{}()));
    fs::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    if (own_) fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const char* name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
  bool own_;
};

std::string random_bytes(std::mt19937_64& random, int64_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

void write_examples(const std::string& path, int64_t count, int64_t image_bytes) {
  if (fs::exists(path)) return;
  std::mt19937_64 random(0);
  data::RecordWriter writer(path);
  for (int64_t i = 0; i < count; ++i) {
    data::ExampleBuilder example;
    example.set("image", std::string_view(random_bytes(random, image_bytes))).set("label", i % 10);
    writer.write(example.serialize());
  }
  writer.close();
}

/// Measures what goes through all elements of a pipeline and returns how many records they had.
InputResult measure(const InputOptions& options, std::string name, int64_t bytes_per_record,
                    const std::function<int64_t()>& go_through) {
  go_through();
  std::vector<double> seconds;
  int64_t records = 0;
  for (int i = 0; i < options.repeats; ++i) seconds.push_back(time_of(1, [&] { records = go_through(); }));
  const double rate = static_cast<double>(records) / median(seconds);
  return {"input/" + std::move(name), rate, rate * static_cast<double>(bytes_per_record), 0};
}

/// The least work on a record file: every payload is touched once, by the checksum.
int64_t checksum_all(const std::string& path) {
  data::RecordReader reader(path);
  data::Bytes record;
  int64_t count = 0;
  while (reader.next(record)) ++count;
  return count;
}

template <class T>
int64_t count_rows(const data::Dataset<T>& dataset) {
  int64_t rows = 0;
  for (auto& batch : dataset) {
    if constexpr (std::is_same_v<T, data::Named>) {
      rows += batch["image"].size(0);
    } else if constexpr (requires { batch.size(0); }) {
      rows += batch.size(0);
    } else if constexpr (requires { batch.size(); }) {
      rows += static_cast<int64_t>(batch.size());
    } else {
      rows += std::get<0>(batch).size(0);
    }
  }
  return rows;
}

/// Restores an iterator at `taken` elements and returns that number.
template <class T>
int64_t restore_at(const data::Dataset<T>& dataset, int64_t taken) {
  auto iterator = dataset.iterator_of_epoch(0);
  data::Position position = iterator.position();
  position.taken = taken;
  iterator.restore(position);
  iterator.next();
  return taken;
}

auto image_and_label(int64_t image_bytes) {
  return data::parse_example({{"image", data::Raw{at::kByte, {image_bytes}}}, {"label", data::FixedLen{at::kLong}}});
}

void bench_records(const InputOptions& options, const Folder& folder, std::vector<InputResult>& results) {
  const std::string small = folder.file("small.tfrecord");
  const std::string large = folder.file("large.tfrecord");
  write_examples(small, options.small_records, kSmallBytes);
  write_examples(large, options.large_records, kLargeBytes);
  struct Case {
    const char* name;
    std::string file;
    int64_t bytes;
    std::function<int64_t()> go_through;
  };
  const std::vector<Case> cases{
      {"records_small", small, kSmallBytes, [&] { return count_rows(data::tfrecords(small).batch(256)); }},
      {"records_small_parsed", small, kSmallBytes,
       [&] { return count_rows(data::tfrecords(small).map(image_and_label(kSmallBytes)).batch(256)); }},
      {"records_small_shuffled_parsed", small, kSmallBytes,
       [&] { return count_rows(data::tfrecords(small).shuffle(10'000).map(image_and_label(kSmallBytes)).batch(256)); }},
      {"records_small_shuffled_sharded", small, kSmallBytes,
       [&] { return 4 * count_rows(data::tfrecords(small).shuffle(10'000).shard(4, 0).batch(256)); }},
      {"restore_sampled_shuffles", small, kSmallBytes,
       [&] {
         const auto shuffled = data::tfrecords(small).shuffle(10'000);
         return restore_at(data::sample_from<data::Bytes>({shuffled, shuffled}), options.small_records);
       }},
      {"restore_interleaved_shuffles", small, kSmallBytes,
       [&] {
         const auto shuffled = [&](int64_t) { return data::tfrecords(small).shuffle(10'000); };
         return restore_at(data::range(4).interleave(shuffled), 2 * options.small_records);
       }},
      {"records_large", large, kLargeBytes, [&] { return count_rows(data::tfrecords(large).batch(32)); }},
      {"records_large_parsed", large, kLargeBytes,
       [&] { return count_rows(data::tfrecords(large).map(image_and_label(kLargeBytes)).batch(32)); }},
  };
  for (const Case& each : cases) {
    const InputResult limit = measure(options, "limit", each.bytes, [&] { return checksum_all(each.file); });
    InputResult result = measure(options, each.name, each.bytes, each.go_through);
    result.fraction_of_limit = result.records_per_second / limit.records_per_second;
    results.push_back(result);
  }
}

/// Removes a file from the page cache, as far as its file system and the rights of this process allow.
void make_cold(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  ::fdatasync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

/// Reads a file in blocks and does nothing else.
int64_t read_file(const std::string& path, int64_t records) {
  std::vector<char> block(1 << 20);
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  while (file >= 0 && ::read(file, block.data(), block.size()) > 0) {
  }
  if (file >= 0) ::close(file);
  return records;
}

/// As `measure`, each time from a file that is not in memory.
InputResult measure_cold(const InputOptions& options, std::string name, const std::string& path,
                         const std::function<int64_t()>& go_through) {
  std::vector<double> seconds;
  int64_t records = 0;
  for (int i = 0; i < options.repeats; ++i) {
    make_cold(path);
    seconds.push_back(time_of(1, [&] { records = go_through(); }));
  }
  const double rate = static_cast<double>(records) / median(seconds);
  return {"input/" + std::move(name), rate, rate * static_cast<double>(kLargeBytes), 0};
}

/// Files that are not in memory: mapped, and read with read-ahead, also through a shuffle buffer.
void bench_cold(const InputOptions& options, const Folder& folder, std::vector<InputResult>& results) {
  const std::string large = folder.file("large.tfrecord");
  write_examples(large, options.large_records, kLargeBytes);
  const int64_t records = checksum_all(large);
  const InputResult limit = measure_cold(options, "limit", large, [&] { return read_file(large, records); });
  for (const data::FileAccess access : {data::FileAccess::Map, data::FileAccess::Read}) {
    const auto source = data::tfrecords(large, {.access = access});
    const std::string way = access == data::FileAccess::Map ? "map" : "read";
    for (auto result :
         {measure_cold(options, "records_large_cold_" + way, large, [&] { return count_rows(source.batch(32)); }),
          measure_cold(options, "records_large_cold_shuffled_" + way, large,
                       [&] { return count_rows(source.shuffle(1000).batch(32)); })}) {
      result.fraction_of_limit = result.records_per_second / limit.records_per_second;
      results.push_back(result);
    }
  }
}

/// Copies rows in a random order, 256 at a time, and nothing else.
int64_t copy_rows(const at::Tensor& images, const at::Tensor& order) {
  const auto* index = order.data_ptr<int64_t>();
  const auto* rows = static_cast<const char*>(images.data_ptr());
  for (int64_t begin = 0; begin < order.numel(); begin += 256) {
    const int64_t count = std::min<int64_t>(256, order.numel() - begin);
    at::Tensor batch = at::empty({count, kSmallBytes}, at::kByte);
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(static_cast<char*>(batch.data_ptr()) + i * kSmallBytes, rows + index[begin + i] * kSmallBytes,
                  kSmallBytes);
    }
  }
  return order.numel();
}

void bench_slices(const InputOptions& options, std::vector<InputResult>& results) {
  const at::Tensor images = at::randint(0, 255, {options.small_records, kSmallBytes}, at::kByte);
  const at::Tensor labels = at::arange(options.small_records) % 10;
  const at::Tensor order = at::randperm(options.small_records);
  const auto rows = data::from_tensor_slices(std::tuple{images, labels});
  const InputResult limit = measure(options, "limit", kSmallBytes, [&] { return copy_rows(images, order); });
  for (auto result : {measure(options, "slices", kSmallBytes, [&] { return count_rows(rows.batch(256)); }),
                      measure(options, "slices_shuffled", kSmallBytes,
                              [&] { return count_rows(rows.shuffle(10'000).batch(256)); })}) {
    result.fraction_of_limit = result.records_per_second / limit.records_per_second;
    results.push_back(result);
  }
}

/// As much work as decoding a small image: tens of microseconds of arithmetic on one core.
int64_t decode_like(int64_t value) {
  uint64_t state = static_cast<uint64_t>(value) + 1;
  for (int i = 0; i < 20'000; ++i) state = state * 6364136223846793005ULL + 1442695040888963407ULL;
  return static_cast<int64_t>(state >> 1);
}

void bench_map(const InputOptions& options, std::vector<InputResult>& results) {
  constexpr int64_t kCount = 1'000'000;
  constexpr int64_t kDecoded = 20'000;
  results.push_back(measure(options, "map", sizeof(int64_t), [&] {
    return count_rows(data::range(kCount).map([](int64_t value) { return value + 1; }).batch(256));
  }));
  const auto decoded = [&](int num_threads) {
    return count_rows(data::range(kDecoded).map(decode_like, {.num_threads = num_threads}).batch(256));
  };
  const InputResult one = measure(options, "decode_1_thread", sizeof(int64_t), [&] { return decoded(1); });
  InputResult two = measure(options, "decode_2_threads", sizeof(int64_t), [&] { return decoded(2); });
  two.fraction_of_limit = two.records_per_second / (2 * one.records_per_second);
  results.push_back(one);
  results.push_back(two);
}

}  // namespace

std::vector<InputResult> bench_input(const InputOptions& options) {
  apply_machine_defaults();
  const detail::ThreadShare share(1);
  const Folder folder(options.folder);
  std::vector<InputResult> results;
  bench_records(options, folder, results);
  bench_cold(options, folder, results);
  bench_slices(options, results);
  bench_map(options, results);
  return results;
}

}  // namespace lockstep::bench
