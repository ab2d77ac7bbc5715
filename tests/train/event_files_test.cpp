#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/train/tensorboard/summary_writer.h"
#include "lockstep/train/tensorboard/tensorboard.h"
#include "tests/support/message_of.h"
#include "tests/support/test_folder.h"
#include "tests/train/trainer_fixture.h"

namespace lockstep {
namespace {

using tensorboard::ImageLayout;
using tensorboard::SummaryWriter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::make_rows;
using tests::message_of;
using tests::Rows;
using tests::TestFolder;
using tests::TrainedRegression;

constexpr const char* kFixture = LOCKSTEP_FIXTURES "/events/events.out.tfevents.fixture";

std::vector<std::string> records_of(const std::string& path) {
  std::vector<std::string> records;
  data::RecordReader reader(path);
  for (data::Bytes record; reader.next(record);) records.emplace_back(record.data(), record.size());
  return records;
}

/// The fields of an encoded message by their numbers; numbers are their bytes.
using Fields = std::multimap<uint64_t, std::string>;

Fields fields_of(const std::string& message) {
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<uint8_t>(message.at(at++));
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
  };
  Fields fields;
  while (at < message.size()) {
    const uint64_t key = varint();
    std::string value;
    if ((key & 7) == 0) {
      value = std::to_string(varint());
    } else {
      const uint64_t size = (key & 7) == 1 ? 8 : varint();
      value = message.substr(at, size);
      at += size;
    }
    fields.emplace(key >> 3, value);
  }
  return fields;
}

std::string field(const Fields& fields, uint64_t number) {
  const auto found = fields.find(number);
  return found == fields.end() ? "" : found->second;
}

/// Summary.Value of an event.
Fields value_of_event(const std::string& event) { return fields_of(field(fields_of(field(fields_of(event), 5)), 1)); }

/// An event without its time.
std::string without_time(const std::string& event) {
  EXPECT_EQ(event.at(0), '\x09');
  return event.substr(1 + sizeof(double));
}

struct ScalarPoint {
  std::string tag;
  int64_t step = 0;
  float value = 0;
  bool operator==(const ScalarPoint&) const = default;
};

std::vector<ScalarPoint> scalars_of(const std::string& path) {
  std::vector<ScalarPoint> points;
  for (const std::string& event : records_of(path)) {
    const Fields value = value_of_event(event);
    const std::string content = field(fields_of(field(value, 8)), 4);
    if (content.size() != sizeof(float)) continue;
    const std::string step = field(fields_of(event), 2);
    points.push_back({field(value, 1), step.empty() ? 0 : std::stoll(step)});
    std::memcpy(&points.back().value, content.data(), sizeof(float));
  }
  return points;
}

std::vector<std::string> event_files(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// What the fixture contains, written by TensorFlow.
void write_fixture(SummaryWriter& writer) {
  for (int64_t step = 0; step < 5; ++step) writer.scalar("loss", 1.0 / static_cast<double>(step + 1), step);
  writer.scalar("accuracy", 0.75, 4, "fraction right");
  writer.histogram("weights", torch::tensor({-1.0, 0.0, 0.5, 0.75, 1.0, 2.0}), 0, 4);
  writer.histogram("empty", torch::empty({0}), 1);
  writer.image("picture", torch::arange(96, torch::kByte).view({2, 4, 4, 3}), 0, ImageLayout::HWC);
  writer.text("note", "hello **world**", 0);
}

TEST(EventFilesTest, RecordsAreThoseOfTensorFlow) {
  const TestFolder folder;
  SummaryWriter writer(folder.path());
  write_fixture(writer);
  writer.close();
  const auto expected = records_of(kFixture);
  const auto written = records_of(writer.path());
  ASSERT_EQ(written.size(), expected.size());
  EXPECT_EQ(field(fields_of(written[0]), 3), "brain.Event:2");
  for (size_t i = 1; i < expected.size(); ++i) {
    const std::string tag = field(value_of_event(expected[i]), 1);
    if (tag == "picture") continue;  // other bytes of the same image
    EXPECT_EQ(without_time(written[i]), without_time(expected[i])) << tag;
  }
}

TEST(EventFilesTest, ImagesHaveThePixelsOfTensorFlows) {
  const TestFolder folder;
  SummaryWriter writer(folder.path());
  write_fixture(writer);
  writer.close();
  const auto parts_of = [](const std::string& path) {
    for (const std::string& event : records_of(path)) {
      const Fields value = value_of_event(event);
      if (field(value, 1) != "picture") continue;
      EXPECT_EQ(field(fields_of(field(value, 9)), 1), std::string("\x0a\x06images"));
      std::vector<std::string> parts;
      const Fields tensor = fields_of(field(value, 8));
      const auto [first, last] = tensor.equal_range(8);
      for (auto part = first; part != last; ++part) parts.push_back(part->second);
      return parts;
    }
    return std::vector<std::string>();
  };
  const auto expected = parts_of(kFixture);
  const auto written = parts_of(writer.path());
  ASSERT_EQ(expected.size(), 4U);
  ASSERT_EQ(written.size(), 4U);
  EXPECT_EQ(written[0], expected[0]);
  EXPECT_EQ(written[1], expected[1]);
  for (size_t i = 2; i < 4; ++i) {
    const data::Bytes own{std::string_view(written[i])};
    const data::Bytes other{std::string_view(expected[i])};
    EXPECT_TRUE(data::decode_png(own).equal(data::decode_png(other)));
  }
}

TEST(EventFilesTest, Histograms) {
  const TestFolder folder;
  SummaryWriter writer(folder.path());
  const double infinity = std::numeric_limits<double>::infinity();
  writer.histogram("values", torch::tensor({0.0, 0.4, 1.0, 1.0, 2.0, infinity, std::nan("")}, torch::kDouble), 1, 2);
  writer.histogram("equal", torch::full({3}, 7), 1, 2);
  writer.close();
  const auto numbers = [&](size_t record) {
    const std::string content = field(fields_of(field(value_of_event(records_of(writer.path())[record]), 8)), 4);
    std::vector<double> values(content.size() / sizeof(double));
    std::memcpy(values.data(), content.data(), content.size());
    return values;
  };
  EXPECT_THAT(numbers(1), ElementsAre(0, 1, 2, 1, 2, 3)) << "what is not finite is left out";
  EXPECT_THAT(numbers(2), ElementsAre(7, 7, 0, 7, 7, 3));
  EXPECT_THAT(message_of<c10::ValueError>([&] { writer.histogram("values", torch::ones(1), 1, 0); }),
              HasSubstr("buckets=0"));
}

TEST(EventFilesTest, Images) {
  const TestFolder folder;
  SummaryWriter writer(folder.path());
  writer.image("gray", torch::rand({1, 8, 9}), 1);
  writer.image("floats", torch::full({8, 9, 3}, 2.0), 1);
  EXPECT_THAT(message_of<c10::ValueError>([&] {
                writer.image("which", torch::rand({3, 8, 3}), 1);
              }),
              HasSubstr("ImageLayout::HWC"));
  EXPECT_THAT(message_of<c10::ValueError>([&] {
                writer.image("flat", torch::rand({8, 8}), 1);
              }),
              HasSubstr("3 dimensions"));
  EXPECT_THAT(message_of<c10::ValueError>([&] {
                writer.image("long", torch::ones({8, 8, 1}, torch::kLong), 1);
              }),
              HasSubstr("dtype=Long"));
  EXPECT_THAT(message_of<c10::ValueError>([&] { writer.scalar("", 1, 1); }), HasSubstr("tag"));
  EXPECT_THAT(message_of<c10::ValueError>([&] { SummaryWriter(""); }), HasSubstr("folder"));
}

TEST(EventFilesTest, AreReadWhileTheyGrow) {
  const TestFolder folder;
  SummaryWriter writer(folder.path(), {.flush_every = std::chrono::milliseconds(0)});
  writer.scalar("loss", 1, 1);
  EXPECT_EQ(scalars_of(writer.path()).size(), 1U) << "its time has come";
  SummaryWriter late(folder.path());
  late.scalar("loss", 1, 1);
  EXPECT_EQ(scalars_of(late.path()).size(), 0U);
  late.flush();
  EXPECT_EQ(scalars_of(late.path()).size(), 1U);
  EXPECT_NE(late.path(), writer.path());
}

TEST(TensorBoardTest, EpochsAndSteps) {
  const TestFolder folder;
  const Rows rows = make_rows(8);
  TrainedRegression trained(
      {.callbacks = {callbacks::tensorboard(folder.path(), {.every_steps = 3, .histograms_every = 2})}});
  const History history = trained.trainer.fit(rows.dataset().batch(2),
                                              {.epochs = 2, .validation = rows.dataset().batch(4), .verbose = false});
  const auto files = event_files(folder.path());
  ASSERT_EQ(files.size(), 1U);
  const auto loss = [&](size_t epoch, const char* name) { return static_cast<float>(history.epochs[epoch].at(name)); };
  std::vector<ScalarPoint> steps;
  std::vector<ScalarPoint> epochs;
  for (const ScalarPoint& point : scalars_of(files[0])) {
    if (point.tag == "step/loss") steps.push_back(point);
    if (point.tag == "epoch/loss") epochs.push_back(point);
  }
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].step, 3);
  EXPECT_EQ(steps[1].step, 6);
  EXPECT_THAT(epochs, ElementsAre(ScalarPoint{"epoch/loss", 4, loss(0, "loss")},
                                  ScalarPoint{"epoch/loss", 8, loss(1, "loss")}));
  const auto validation = event_files(folder / "validation");
  ASSERT_EQ(validation.size(), 1U);
  EXPECT_THAT(scalars_of(validation[0]), ElementsAre(ScalarPoint{"epoch/loss", 4, loss(0, "val_loss")},
                                                     ScalarPoint{"epoch/loss", 8, loss(1, "val_loss")}));
  int histograms = 0;
  for (const std::string& event : records_of(files[0])) {
    const std::string tag = field(value_of_event(event), 1);
    if (tag.starts_with("parameters/")) ++histograms;
  }
  EXPECT_EQ(histograms, 4) << "weight and bias of two layers after the second epoch";
  EXPECT_THROW(callbacks::tensorboard("", {}), c10::ValueError);
  EXPECT_THROW(callbacks::tensorboard("x", {.every_steps = -1}), c10::ValueError);
}

TEST(TensorBoardTest, GoesOnAfterARestore) {
  const TestFolder folder;
  const Rows rows = make_rows(8);
  for (const int64_t epochs : {1, 2}) {
    TrainedRegression trained({.callbacks = {callbacks::tensorboard(folder / "events")}});
    trained.trainer.fit(rows.dataset().batch(2),
                        {.epochs = epochs, .checkpoint_folder = folder / "checkpoints", .verbose = false});
  }
  const auto files = event_files(folder / "events");
  ASSERT_EQ(files.size(), 2U);
  const auto start = [&](size_t file) {
    const Fields event = fields_of(records_of(files[file]).at(1));
    EXPECT_EQ(field(fields_of(field(event, 7)), 1), "1") << "SessionLog.START";
    return field(event, 2);
  };
  EXPECT_EQ(start(0), "") << "step 0";
  EXPECT_EQ(start(1), "5");
  EXPECT_EQ(scalars_of(files[1]).at(0).step, 8);
}

/// Files for tests/interop/tensorboard_reads.py, which names the folder.
TEST(TensorBoardTest, ForReaders) {
  const TestFolder temporary;
  const char* const given = std::getenv("LOCKSTEP_TEST_EVENTS");
  const std::string folder = given != nullptr ? given : temporary.path().string();
  {
    SummaryWriter writer(folder + "/kinds");
    write_fixture(writer);
  }
  {
    SummaryWriter writer(folder + "/named/only");
    writer.hyper_parameters({{"depth", 3.0}}, {{.tag = "score", .display_name = "points"}});
    writer.scalar("score", 5, 1);
    writer.scalar("other", 6, 1);
    writer.session_end(tensorboard::SessionStatus::Failure);
  }
  for (const double rate : {0.1, 0.01}) {
    const std::string name = rate == 0.1 ? "/trainings/first" : "/trainings/second";
    const Rows rows = make_rows(8);
    const TestFolder checkpoints;
    for (const int64_t epochs : {1, 3}) {
      TrainedRegression trained(
          {.callbacks = {callbacks::tensorboard(
               folder + name,
               {.every_steps = 1,
                .histograms_every = 1,
                .hyper_parameters = {{"rate", rate}, {"optimizer", std::string("sgd")}, {"shuffled", false}}})}});
      trained.trainer.fit(rows.dataset().batch(2), {.epochs = epochs,
                                                    .validation = rows.dataset().batch(4),
                                                    .checkpoint_folder = checkpoints.path(),
                                                    .verbose = false});
    }
  }
  EXPECT_EQ(event_files(folder + "/trainings/first").size(), 2U);
}

}  // namespace
}  // namespace lockstep
