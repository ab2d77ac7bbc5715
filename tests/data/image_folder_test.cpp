#include "lockstep/data/image_folder.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/image/image_ops.h"
#include "lockstep/data/rewrites/auto_shard.h"
#include "tests/data/formats/temporary_folder.h"
#include "tests/data/pipelines.h"

namespace lockstep::data {
namespace {

using namespace tests;  // NOLINT
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

// A folder of images whose pixels all have one value, which tests recognise them by.
class ImageFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      encode_png(at::zeros({1, 1, 3}, at::kByte));
    } catch (const c10::NotImplementedError& error) {
      GTEST_SKIP() << error.what_without_backtrace();
    }
  }

  void write(const std::string& name, const std::string& contents) const {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << contents;
  }
  void write_image(const std::string& name, int value, int64_t width = 4) const {
    write(name, encode_png(at::full({3, width, 3}, value, at::kByte)).str());
  }
  // Classes "cat" (values 10, 11), "dog" (20, 21, 22).
  void write_pets() const {
    write_image("pets/dog/1.png", 20);
    write_image("pets/dog/deep/er/2.PNG", 21);
    write_image("pets/dog/3.png", 22);
    write_image("pets/cat/b.png", 11);
    write_image("pets/cat/a.png", 10);
  }
  std::string path(const std::string& name) const { return folder_ / name; }

  TemporaryFolder folder_;
};

using FoundImages = std::vector<std::pair<int, int64_t>>;

// The values of the images, and their labels.
FoundImages values_of(const Dataset<std::tuple<at::Tensor, int64_t>>& dataset) {
  FoundImages found;
  for (const auto& [image, label] : dataset.collect()) {
    EXPECT_TRUE(image.eq(image[0][0][0]).all().item<bool>());
    found.emplace_back(image[0][0][0].item<int>(), label);
  }
  return found;
}

const FoundImages kPets{{10, 0}, {11, 0}, {20, 1}, {22, 1}, {21, 1}};

TEST_F(ImageFolderTest, LabelsImagesByTheirFolder) {
  write_pets();
  for (const std::string name : {"pets", "pets/"}) {
    const ImageFolder pets = image_folder(path(name), {.shuffle = false});
    EXPECT_EQ(pets.classes, (std::vector<std::string>{"cat", "dog"}));
    EXPECT_EQ(pets.labels, (std::vector<int64_t>{0, 0, 1, 1, 1}));
    EXPECT_EQ(pets.files.size(), 5);
    EXPECT_THAT(pets.files[0], HasSubstr("pets/cat/a.png"));
    EXPECT_EQ(values_of(pets.dataset), kPets);
    EXPECT_EQ(pets.dataset.cardinality(), Cardinality::exactly(5));
    expect_well_behaved(pets.dataset);
  }
  const auto batches = image_folder(path("pets"), {.shuffle = false}).dataset.batch(5).collect();
  EXPECT_EQ(std::get<0>(batches[0]).sizes(), (std::vector<int64_t>{5, 3, 4, 3}));
  EXPECT_TRUE(at::equal(std::get<1>(batches[0]), torch::tensor(std::vector<int64_t>{0, 0, 1, 1, 1}, at::kLong)));
}

TEST_F(ImageFolderTest, SpecIsKnownWithoutReading) {
  write("pets/cat/1.png", "no image");
  const auto spec = image_folder(path("pets")).dataset.element_spec();
  std::ostringstream text;
  text << spec;
  EXPECT_THAT(text.str(), AllOf(HasSubstr("(None, None, 3)"), HasSubstr("uint8"), HasSubstr("int64")));
}

TEST_F(ImageFolderTest, OrderIsRandomAndLabelsStay) {
  write_pets();
  const ImageFolder pets = image_folder(path("pets"), {.seed = 7});
  std::set<FoundImages> orders;
  for (int epoch = 0; epoch < 20; ++epoch) {
    FoundImages found = values_of(pets.dataset);
    orders.insert(found);
    std::sort(found.begin(), found.end());
    FoundImages expected = kPets;
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(found, expected);
  }
  EXPECT_GT(orders.size(), 5);
  const ImageFolder again = image_folder(path("pets"), {.seed = 7, .num_threads = 3});
  EXPECT_EQ(values_of(again.dataset), values_of(image_folder(path("pets"), {.seed = 7}).dataset));
}

TEST_F(ImageFolderTest, GivenClassesKeepTheirNumbers) {
  write_pets();
  write_image("test/dog/1.png", 30);
  const ImageFolder train = image_folder(path("pets"), {.shuffle = false});
  const ImageFolder test = image_folder(path("test"), {.classes = train.classes, .shuffle = false});
  EXPECT_EQ(test.classes, train.classes);
  EXPECT_EQ(values_of(test.dataset), (FoundImages{{30, 1}}));
  const ImageFolder other = image_folder(path("pets"), {.classes = {"dog", "emu", "cat"}, .shuffle = false});
  EXPECT_EQ(values_of(other.dataset), (FoundImages{{20, 0}, {22, 0}, {21, 0}, {10, 2}, {11, 2}}));
  write_image("test/emu/1.png", 40);
  EXPECT_THAT(message_of([&] { image_folder(path("test"), {.classes = train.classes}); }),
              AllOf(HasSubstr("class=\"emu\""), HasSubstr("classes=2")));
  EXPECT_THAT(message_of([&] {
                image_folder(path("pets"), {.classes = {"cat", "dog", "cat"}});
              }),
              HasSubstr("listed once"));
}

TEST_F(ImageFolderTest, LeavesOutWhatIsNoImage) {
  write_pets();
  write("pets/README.md", "text");
  write("pets/cat/Thumbs.db", "text");
  write("pets/cat/._a.png", "resource fork");
  write("pets/.cache/x.png", "hidden");
  write("pets/dog/.hidden/x.png", "hidden");
  EXPECT_EQ(values_of(image_folder(path("pets"), {.shuffle = false}).dataset), kPets);
}

TEST_F(ImageFolderTest, FilesNeedNoClasses) {
  write_pets();
  write_image("pets/top.png", 1);
  write("pets/notes.txt", "no image");
  const std::vector<std::string> files = image_files(path("pets"));
  EXPECT_EQ(files,
            (std::vector<std::string>{path("pets/cat/a.png"), path("pets/cat/b.png"), path("pets/dog/1.png"),
                                      path("pets/dog/3.png"), path("pets/dog/deep/er/2.PNG"), path("pets/top.png")}));
  EXPECT_THROW(image_files(path("none")), c10::ValueError);
}

TEST_F(ImageFolderTest, SaysWhatIsWrong) {
  const auto error = [&](const std::string& name) { return message_of([&] { image_folder(path(name)); }); };
  EXPECT_THAT(error("nowhere"), AllOf(HasSubstr("must exist"), HasSubstr("nowhere")));
  write_image("flat/1.png", 1);
  EXPECT_THAT(error("flat"), AllOf(HasSubstr("a folder for each class"), HasSubstr("images(")));
  write_pets();
  fs::create_directories(path("pets/emu"));
  EXPECT_THAT(error("pets"), AllOf(HasSubstr("every class must have an image"), HasSubstr("pets/emu")));
  fs::remove_all(path("pets/emu"));
  write("pets/cat/c.WebP", "image");
  EXPECT_THAT(error("pets"), AllOf(HasSubstr("JPEG or PNG"), HasSubstr("c.WebP")));
}

TEST_F(ImageFolderTest, NamesDamagedFilesAndGoesOn) {
  write_pets();
  write("pets/cat/a1.jpg", "no image");
  for (const int num_threads : {1, 3}) {
    auto iterator = image_folder(path("pets"), {.shuffle = false, .num_threads = num_threads}).dataset.iterator();
    EXPECT_EQ(std::get<0>(*iterator.next())[0][0][0].item<int>(), 10);
    EXPECT_THAT(message_of([&] { iterator.next(); }), HasSubstr("pets/cat/a1.jpg"));
    EXPECT_EQ(std::get<0>(*iterator.next())[0][0][0].item<int>(), 11);
  }
}

TEST_F(ImageFolderTest, WorkersDivideTheFiles) {
  write_pets();
  const NodePtr node = detail::node_of(image_folder(path("pets"), {.shuffle = false}).dataset);
  FoundImages all;
  for (int worker = 0; worker < 2; ++worker) {
    const auto part = detail::auto_shard(node, {.num_workers = 2, .index = worker}, AutoShardPolicy::Auto);
    EXPECT_EQ(part.policy, AutoShardPolicy::File);
    const FoundImages found = values_of(Dataset<std::tuple<at::Tensor, int64_t>>(part.node));
    all.insert(all.end(), found.begin(), found.end());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, (FoundImages{{10, 0}, {11, 0}, {20, 1}, {21, 1}, {22, 1}}));
}

// Augmentation depends on the seed, the epoch and the element, not on the number of threads.
TEST_F(ImageFolderTest, RandomOperationsAreSeededPerElement) {
  for (int i = 0; i < 12; ++i) {
    const at::Tensor image = at::randint(0, 256, {9, 8, 3}, at::kByte);
    write("noise/a/" + std::to_string(i + 10) + ".png", encode_png(image).str());
  }
  const auto augmented = [&](int num_threads) {
    return image_folder(path("noise"), {.shuffle = false})
        .dataset
        .map(
            [](at::Tensor image, int64_t) {
              image = random_crop(image, 6, 6);
              random_horizontal_flip_(image);
              return color_jitter_(image, {.brightness = 0.5, .hue = 0.2});
            },
            {.num_threads = num_threads})
        .batch(12);
  };
  const auto one = augmented(1);
  const auto four = augmented(4);
  torch::manual_seed(11);
  const at::Tensor first = one.iterator_of_epoch(0).next().value();
  const at::Tensor second = one.iterator_of_epoch(1).next().value();
  EXPECT_TRUE(at::equal(four.iterator_of_epoch(0).next().value(), first));
  EXPECT_TRUE(at::equal(four.iterator_of_epoch(1).next().value(), second));
  EXPECT_FALSE(at::equal(first, second));
}

}  // namespace
}  // namespace lockstep::data
