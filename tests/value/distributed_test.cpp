#include "lockstep/value/distributed.h"

#include <string>
#include <type_traits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

template <class T>
concept Addable = requires(const T& value) {
  value + value;
};

// No operators of its own: what compiles is what the component has, by conversion.
static_assert(!Addable<PerReplica<std::vector<int>>>);

TEST(PerReplica, IsItsComponentInsideAReplicaAlone) {
  const PerReplica<double> value{1.0, 2.0};
  EXPECT_THROW(static_cast<double>(value), c10::ValueError);
  for (int replica : {0, 1}) {
    const detail::PositionGuard position({PositionKind::Replica, replica});
    EXPECT_EQ(static_cast<double>(value), replica + 1.0);
    EXPECT_EQ(value + 1.0, replica + 2.0);
  }
  const detail::PositionGuard position({PositionKind::CrossReplica, -1});
  EXPECT_THROW(value.value(), c10::ValueError);
}

TEST(PerReplica, IsItsComponentInsideAnUpdate) {
  const PerReplica<double> value{1.0, 2.0};
  const detail::PositionGuard position({PositionKind::Update, 1});
  EXPECT_EQ(value.value(), 2.0);
}

TEST(PerReplica, ErrorSaysWhatToDo) {
  try {
    PerReplica<int>{1, 2}.value();
    FAIL();
  } catch (const c10::ValueError& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("reduce"));
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("components=2"));
  }
}

TEST(PerReplica, BareConvertsEverywhere) {
  const auto value = PerReplica<double>::bare(3.0);
  EXPECT_TRUE(value.is_bare());
  EXPECT_EQ(static_cast<double>(value), 3.0);
  EXPECT_EQ(value.at(5), 3.0) << "every replica sees the value";
  EXPECT_FALSE((PerReplica<double>{1.0}).is_bare()) << "one component is not the same as bare";
}

TEST(PerReplica, ComponentsAreCheckedByAt) {
  const PerReplica<int> value{1, 2};
  EXPECT_EQ(value.at(1), 2);
  EXPECT_THROW(value.at(2), c10::IndexError);
  EXPECT_THROW(value.at(-1), c10::IndexError);
}

TEST(Mirrored, IsItsComponentEverywhere) {
  const Mirrored<double> value{1.0, 2.0};
  EXPECT_EQ(static_cast<double>(value), 1.0);
  const detail::PositionGuard position({PositionKind::Replica, 1});
  EXPECT_EQ(static_cast<double>(value), 2.0);
}

TEST(Mirrored, SingleCopyIsEverybodys) {
  const Mirrored<double> value{1.0};
  const detail::PositionGuard position({PositionKind::Update, 1});
  EXPECT_EQ(value.value(), 1.0);
  EXPECT_EQ(value.at(2), 1.0);
  EXPECT_THROW((Mirrored<double>{1.0, 1.0}.at(2)), c10::IndexError);
}

TEST(Distributed, PrintAsTheApiPages) {
  std::ostringstream out;
  out << PerReplica<at::Tensor>{at::zeros({1}, at::kLong), at::full({1}, 2, at::kLong)};
  EXPECT_EQ(out.str(),
            "PerReplica:{\n"
            "  0: <tf.Tensor: shape=(1,), dtype=int64, numpy=array([0])>,\n"
            "  1: <tf.Tensor: shape=(1,), dtype=int64, numpy=array([2])>\n"
            "}");
  EXPECT_EQ(repr(Mirrored<int>{1, 1}), "Mirrored:{\n  0: 1,\n  1: 1\n}");
  EXPECT_EQ(repr(PerReplica<at::Tensor>::bare(at::full({}, 6.0))), "<tf.Tensor: shape=(), dtype=float32, numpy=6.0>");
}

TEST(Distributed, StrPrintsComponentsAsPrintDoes) {
  EXPECT_EQ(str(PerReplica<std::string>{"a", "b"}), "PerReplica:{\n  0: a,\n  1: b\n}");
  EXPECT_EQ(repr(PerReplica<std::string>{"a", "b"}), "PerReplica:{\n  0: 'a',\n  1: 'b'\n}");
  EXPECT_EQ(str(PerReplica<at::Tensor>{at::ones({})}), "PerReplica:{\n  0: tf.Tensor(1.0, shape=(), dtype=float32)\n}");
}

}  // namespace
}  // namespace lockstep
