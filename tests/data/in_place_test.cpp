#include <filesystem>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/data/files.h"
#include "lockstep/data/formats/image/image_ops.h"
#include "lockstep/data/formats/numpy/npy.h"
#include "lockstep/data/formats/numpy/npz.h"
#include "lockstep/data/formats/records/example_builder.h"
#include "lockstep/data/formats/records/record_writer.h"
#include "lockstep/data/parse_example.h"
#include "tests/data/formats/temporary_folder.h"
#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT
using ::testing::ElementsAre;

/// Writes to a tensor as C++ programs do: by LibTorch, and by its address.
void overwrite(const at::Tensor& tensor) {
  tensor.fill_(7);
  auto* bytes = static_cast<char*>(tensor.data_ptr());
  std::fill(bytes, bytes + tensor.nbytes(), 1);
}

/// Whatever a function, or the loop itself, writes to: every epoch gives the same elements.
void expect_unharmed(const Dataset<at::Tensor>& dataset) {
  const Texts all = all_of(dataset);
  ASSERT_FALSE(all.empty());
  const auto write = [](at::Tensor x) {
    const at::Tensor before = x.clone();
    overwrite(x);
    return before;
  };
  for (const int threads : {1, 3}) {
    const auto written = dataset.map(write, {.num_threads = threads});
    EXPECT_EQ(all_of(written), all) << dataset.str();
    EXPECT_EQ(all_of(written), all) << dataset.str() << " after an epoch with writes";
  }
  const auto filtered = dataset.filter([](const at::Tensor& x) { return overwrite(x), true; });
  EXPECT_EQ(all_of(filtered), all) << dataset.str();
  EXPECT_EQ(all_of(dataset.flat_map([](at::Tensor x) { return overwrite(x), range(1); })).size(), all.size());
  for (const at::Tensor& x : dataset) overwrite(x);
  EXPECT_EQ(all_of(dataset), all) << dataset.str() << " after a loop that writes";
  const auto twice = dataset.flat_map([](const at::Tensor& x) { return from_tensors(x).repeat(2); }).map(write);
  EXPECT_EQ(all_of(twice).size(), 2 * all.size());
  EXPECT_EQ(all_of(twice)[1], all[0]) << "the second copy of an element";
  EXPECT_EQ(all_of(zip(dataset.map(write), dataset)), all_of(zip(dataset, dataset))) << dataset.str();
}

std::string bytes_of_image(int64_t i, size_t size) {
  std::string image(size, '\0');
  for (size_t k = 0; k < size; ++k) image[k] = static_cast<char>(i * 31 + static_cast<int64_t>(k));
  return image;
}

/// Records with an image of bytes and floats of an address that is a multiple of four in some records.
std::string write_examples(const TemporaryFolder& folder, int64_t count, size_t size,
                           Compression compression = Compression::None) {
  const std::string file = folder / "examples";
  RecordWriter writer(file, {.compression = compression});
  for (int64_t i = 0; i < count; ++i) {
    ExampleBuilder example;
    example.set("image", std::string_view(bytes_of_image(i, size)));
    example.set("pad", std::string_view(std::string(static_cast<size_t>(i), 'x')));
    example.set("values", std::vector<float>{1.5F, 2.5F, static_cast<float>(i)});
    example.set("counts", std::vector<int64_t>{i, i + 1});
    writer.write(example.serialize());
  }
  writer.close();
  return file;
}

Features features(size_t size) {
  return {{"image", Raw{at::kByte, {static_cast<int64_t>(size)}}},
          {"values", FixedLen{at::kFloat, {3}}},
          {"counts", FixedLen{at::kLong, {2}}},
          {"missing", FixedLen{at::kFloat, {2}, at::full({2}, 4.0)}}};
}

TEST(InPlaceTest, RecordsOfMappedFiles) {
  const TemporaryFolder folder;
  for (const Compression compression : {Compression::None, Compression::Gzip}) {
    const std::string file = write_examples(folder, 5, 10, compression);
    const std::string before = read_whole_file(file);
    for (const char* name : {"image", "values", "counts", "missing"}) {
      expect_unharmed(tfrecords(file).map(parse_example(features(10))).map(fields<at::Tensor>({name})));
    }
    EXPECT_EQ(read_whole_file(file), before);
  }
}

TEST(InPlaceTest, LargeRecordsGetPagesOfTheirOwn) {
  const TemporaryFolder folder;
  constexpr size_t kSize = (size_t{256} << 10) + 12345;
  const std::string file = write_examples(folder, 2, kSize);
  const auto images = tfrecords(file).map(parse_example(features(kSize))).map(fields<at::Tensor>({"image"}));
  const auto check = [&](const Dataset<at::Tensor>& dataset) {
    int64_t i = 0;
    for (const at::Tensor& image : dataset) {
      const auto* begin = static_cast<const char*>(image.data_ptr());
      EXPECT_TRUE(std::string(begin, begin + image.nbytes()) == bytes_of_image(i++, kSize));
      overwrite(image);
    }
    EXPECT_EQ(i, 2);
  };
  for (int epoch = 0; epoch < 2; ++epoch) {
    check(images);
    check(images.map([](at::Tensor x) {
      const at::Tensor before = x.clone();
      overwrite(x);
      return before;
    }));
    check(images.cache());
    check(images.cache(folder / "cache"));
  }
}

// Pages of their own are pages of the file until they are written.
TEST(InPlaceTest, ACacheOfLargeTensorsHoldsNoFiles) {
  const TemporaryFolder folder;
  constexpr size_t kSize = (size_t{256} << 10) + 12345;
  const std::string file = write_examples(folder, 2, kSize);
  const auto images = tfrecords(file).map(parse_example(features(kSize))).map(fields<at::Tensor>({"image"}));
  const auto cached = images.map([](at::Tensor x) { return x; }).cache();
  cached.collect();
  std::filesystem::resize_file(file, 0);  // a cache that pointed into the file would end the process
  const auto found = cached.collect();
  ASSERT_EQ(found.size(), 2U);
  const auto* begin = static_cast<const char*>(found[1].data_ptr());
  EXPECT_TRUE(std::string(begin, begin + found[1].nbytes()) == bytes_of_image(1, kSize));
}

TEST(InPlaceTest, NamedElementsMayBeCopiedWhileOthersRequestParts) {
  const TemporaryFolder folder;
  const std::string file = write_examples(folder, 1, 10);
  for (const Named& e : tfrecords(file).map(parse_example(features(10))).repeat(50)) {
    std::thread other([&] { e["values"], e["image"], e["counts"]; });
    const Named copy = e;  // clean under TSan
    EXPECT_EQ(copy.size(), e.size());
    other.join();
  }
}

TEST(InPlaceTest, APartOfANamedElementIsOneTensor) {
  const TemporaryFolder folder;
  const std::string file = write_examples(folder, 4, 10);
  const auto written = tfrecords(file).map(parse_example(features(10))).map([](const Named& e) {
    e["values"].mul_(2);
    e["image"].zero_();
    return e;
  });
  for (int epoch = 0; epoch < 2; ++epoch) {
    int64_t i = 0;
    for (const Named& e : written) {
      EXPECT_TRUE(at::equal(e["values"], at::tensor({3.0F, 5.0F, 2.0F * static_cast<float>(i)})));
      EXPECT_EQ(e["image"].sum().item<int64_t>(), 0);
      EXPECT_EQ(e["counts"][0].item<int64_t>(), i++);
    }
  }
}

TEST(InPlaceTest, ANamedElementMayBeFiltered) {
  const TemporaryFolder folder;
  const auto named = tfrecords(write_examples(folder, 4, 10)).map(parse_example(features(10)));
  const auto kept = named.filter([](const Named& e) {
    e["image"].zero_();
    return e["counts"][0].item<int64_t>() % 2 == 1;
  });
  EXPECT_EQ(all_of(kept.map(fields<at::Tensor>({"image"}))).at(1),
            all_of(named.map(fields<at::Tensor>({"image"}))).at(3));
  const auto batches = named.bucket_by_length([](const Named& e) { return e["counts"].zero_().size(0); }, {5}, {2, 2});
  EXPECT_TRUE(at::equal(batches.collect().at(1)["counts"], at::tensor({2, 3, 3, 4}).view({2, 2})));
}

TEST(InPlaceTest, TensorsInMemory) {
  const at::Tensor rows = at::arange(12, at::kFloat).view({4, 3});
  const at::Tensor before = rows.clone();
  expect_unharmed(from_tensor_slices(rows));
  expect_unharmed(from_tensor_slices(rows.t()));
  expect_unharmed(from_tensor_slices(rows).unbatch().batch(2));
  expect_unharmed(from_tensor_slices(rows.view({2, 2, 3})).unbatch());
  expect_unharmed(from_tensors(rows));
  expect_unharmed(from_tensors(rows.t()));
  expect_unharmed(from_tensors(rows).rebatch(2));
  expect_unharmed(from_vector(std::vector<at::Tensor>{rows, rows[1], at::tensor(3.0)}));
  expect_unharmed(range(4).map([rows](int64_t i) { return rows[i]; }).shuffle(3, {.seed = 1}).prefetch(2).take(3));
  EXPECT_TRUE(at::equal(rows, before));
}

TEST(InPlaceTest, Caches) {
  const TemporaryFolder folder;
  const at::Tensor rows = at::arange(12, at::kFloat).view({4, 3});
  const auto made = range(4).map([](int64_t i) { return at::arange(3).add(i); });
  expect_unharmed(made.cache());
  expect_unharmed(made.batch(3).cache());
  expect_unharmed(made.batch(2).cache().unbatch());
  expect_unharmed(made.batch(4).cache().rebatch(2));
  expect_unharmed(range(4).map([](int64_t i) { return at::arange(6).view({2, 3}).t().add(i); }).cache());
  expect_unharmed(made.cache(folder / "made"));
  expect_unharmed(made.batch(3).cache(folder / "batches"));
  expect_unharmed(from_tensor_slices(rows).cache());
  // What the first epoch writes is not what is cached.
  const auto cached = made.cache();
  for (const at::Tensor& x : cached) overwrite(x);
  EXPECT_EQ(all_of(cached), all_of(made));
}

TEST(InPlaceTest, Arrays) {
  const TemporaryFolder folder;
  save_npy(folder / "x.npy", at::arange(12, at::kFloat).view({4, 3}));
  save_npz(folder / "x.npz", {{"x", at::arange(12).view({4, 3})}});
  expect_unharmed(npy(folder / "x.npy"));
  expect_unharmed(npz(folder / "x.npz").map(fields<at::Tensor>({"x"})));
  const auto parsed = from_vector(std::vector<std::string>{folder / "x.npy"}).map([](const std::string& file) {
    return Bytes(read_whole_file(file));
  });
  expect_unharmed(parsed.cache().map([](const Bytes& bytes) { return parse_npy(bytes); }));
}

TEST(InPlaceTest, NestsListsAndStructs) {
  const at::Tensor x = at::arange(6).view({3, 2});
  struct Pair {
    at::Tensor a;
    std::vector<at::Tensor> b;
  };
  const auto pairs = from_vector(std::vector<Pair>{{x, {x, x.t()}}});
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const Pair& pair : pairs) {
      EXPECT_TRUE(at::equal(pair.a, at::arange(6).view({3, 2})));
      overwrite(pair.a);
      EXPECT_TRUE(at::equal(pair.b[0], at::arange(6).view({3, 2})));
      overwrite(pair.b[0]);
      EXPECT_TRUE(at::equal(pair.b[1], at::arange(6).view({3, 2}).t()));
      pair.b[1].zero_();
    }
  }
  List<at::Tensor> list;
  list.push_back(x);
  const auto lists = from_vector(std::vector<List<at::Tensor>>(1, list));
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const auto& each : lists) {
      ASSERT_EQ(each.size(), 1U);
      EXPECT_TRUE(at::equal(each[0], at::arange(6).view({3, 2})));
      overwrite(each[0]);
    }
  }
}

// No copy where a tensor belongs to its element alone.
TEST(InPlaceTest, WhatAFunctionMadeIsHandedOnWithoutACopy) {
  std::set<const void*> made;
  std::set<const void*> seen;
  const auto first = range(6).map([&](int64_t i) {
    at::Tensor x = at::full({1000}, i);
    made.insert(x.data_ptr());
    return x;
  });
  // Kept alive, so that no address is used twice.
  const auto kept = first.prefetch(1).map([&](at::Tensor x) { return seen.insert(x.data_ptr()), x; }).collect();
  EXPECT_EQ(seen, made);
  std::vector<at::Tensor> batches;
  for (const at::Tensor& batch : range(7).batch(4).map([&](at::Tensor x) { return batches.push_back(x), x; })) {
    EXPECT_TRUE(at::equal(batch, batches.back()));
  }
  const auto handed_on =
      range(2).batch(2).map([&](at::Tensor x) { return seen.clear(), seen.insert(x.data_ptr()), x; });
  const auto through = handed_on.map([&](const at::Tensor& x) { return seen.contains(x.data_ptr()); });
  EXPECT_THAT(all_of(through), ElementsAre("1"));
}

TEST(InPlaceTest, AFunctionThatPromisesNotToWriteSharesTheMemory) {
  const at::Tensor table = at::arange(12, at::kFloat).view({4, 3});
  std::vector<const void*> seen;
  const auto shared = from_tensor_slices(table).map(
      [&](const at::Tensor& x) { return seen.push_back(x.data_ptr()), x.slice(0, 1, 3); }, {.read_only = true});
  const auto written = shared.map([](at::Tensor x) { return x.mul_(2); });
  EXPECT_THAT(all_of(written), ElementsAre("{2 4}", "{8 10}", "{14 16}", "{20 22}"));
  EXPECT_THAT(all_of(written), ElementsAre("{2 4}", "{8 10}", "{14 16}", "{20 22}")) << "its results may be written to";
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(seen.at(i), static_cast<float*>(table.data_ptr()) + 3 * i);
  const auto named = from_tensor_slices(std::map<std::string, at::Tensor>{{"x", table}});
  const auto promised =
      named.map([](std::map<std::string, at::Tensor> e) { return e.at("x").add_(1); }, {.read_only = true});
  EXPECT_THAT(message_of([&] { promised.collect(); }), ::testing::HasSubstr("leave out read_only"));
}

TEST(InPlaceTest, ConjugatedTensorsKeepTheirValues) {
  const at::Tensor x = at::complex(at::arange(4, at::kFloat), at::arange(4, at::kFloat)).conj();
  const auto rows = from_tensor_slices(x.view({2, 2}));
  EXPECT_TRUE(at::equal(rows.batch(2).collect()[0].resolve_conj(), x.resolve_conj().view({2, 2})));
  const auto whole = from_tensors(x).batch(1).collect()[0];
  EXPECT_TRUE(at::equal(whole.resolve_conj(), x.resolve_conj().view({1, 4})));
}

TEST(ReadOnlyTest, ChangesOfImagesAreSeen) {
  const at::Tensor images = at::randint(0, 255, {2, 4, 5, 3}, at::kByte);
  for (const auto& change : std::vector<std::function<at::Tensor(const at::Tensor&)>>{
           horizontal_flip_, vertical_flip_, [](const at::Tensor& x) { return adjust_brightness_(x, 0.5); }}) {
    const auto promised =
        from_tensor_slices(images).map([change](const at::Tensor& x) { return change(x) + 1; }, {.read_only = true});
    EXPECT_THAT(message_of([&] { promised.collect(); }), ::testing::HasSubstr("leave out read_only"));
  }
  EXPECT_THAT(message_of([&] { horizontal_flip_(images[0][0].expand({4, 5, 3})); }), ::testing::HasSubstr("clone()"));
}

}  // namespace
}  // namespace lockstep::data
